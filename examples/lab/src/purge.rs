//! `POST /claims/{key}/purge`: an operator drops a result, and the next request with its key runs.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use tower_claim::store::Purged;
use tower_claim::{Key, Token};

use crate::operators::Desk;
use crate::problem::bad_request;

#[derive(Debug, Deserialize)]
pub(crate) struct PurgeQuery {
    token: Option<String>,
}

pub(crate) async fn purge(
    State(desk): State<Desk>,
    Path(key): Path<String>,
    Query(query): Query<PurgeQuery>,
) -> Response {
    let token = query.token.as_deref().and_then(|token| token.parse().ok());
    let Some(token) = token.and_then(Token::new) else {
        return bad_request("token is missing: the one that /claims tells".to_owned());
    };
    let unknown = (StatusCode::NOT_FOUND, "no result has this key").into_response();
    let Ok(key) = key.parse::<Key>() else {
        return unknown;
    };
    // Asked past the faults, as all that operators ask.
    match desk.store.dyn_purge(key, token).await {
        Ok(Purged::Purged { .. }) => StatusCode::NO_CONTENT.into_response(),
        Ok(Purged::Absent) => unknown,
        Ok(_) => {
            let why = "this key has no result yet, or the result of another token";
            (StatusCode::CONFLICT, why).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}
