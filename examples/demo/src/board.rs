//! The board: where every request is, as JSON.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tower_stage::{Board, Filter};

/// `?stage=upstream_called&min_age_ms=500&limit=20`, each optional.
pub(crate) async fn show(State(board): State<Board>, RawQuery(query): RawQuery) -> Response {
    match Filter::from_query(&query.unwrap_or_default()) {
        Ok(filter) => ([(CONTENT_TYPE, "application/json")], board.json(&filter)).into_response(),
        Err(bad) => (StatusCode::BAD_REQUEST, bad.to_string()).into_response(),
    }
}
