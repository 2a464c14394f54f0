//! What operators see and do: effects, the board, claims, faults, metrics.

use std::sync::Arc;

use axum::extract::{Query, RawQuery, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use http::StatusCode;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use serde::Deserialize;
use serde_json::{Value, json};
use tower_claim::DynClaimAdmin;
use tower_claim::store::RecordView;
use tower_claim::testing::{Fault, Faults};
use tower_idempotency::Operator;
use tower_stage::{Board, Filter};

use crate::effects::Effects;
use crate::metrics::Requests;
use crate::problem::{bad_request, not_yet};
use crate::purge::purge;
use crate::resolve::resolve;

/// What the operators' routes look at.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) effects: Effects,
    pub(crate) board: Board,
    pub(crate) faults: Faults,
    pub(crate) store: Arc<dyn DynClaimAdmin>,
    pub(crate) runs: Operator,
    pub(crate) metrics: Requests,
    pub(crate) token: Option<Arc<str>>,
}

pub(crate) fn routes(desk: Desk) -> Router {
    let guarded = Router::new()
        .route("/board", get(board))
        .route("/board/ui", any(|| async { not_yet("/board/ui") }))
        .route("/claims", get(claims))
        .route("/claims/{key}/resolve", post(resolve))
        .route("/claims/{key}/purge", post(purge))
        .route(
            "/claims/{key}/break",
            any(|| async { not_yet("/claims/{key}/break") }),
        )
        .route("/faults", post(faults))
        .layer(from_fn_with_state(desk.token.clone(), admit_operators));
    Router::new()
        .route("/effects", get(effects))
        .route("/effects/reset", post(reset))
        .route("/metrics", get(metrics))
        .route(
            "/items/{id}/invalidate",
            any(|| async { not_yet("/items/{id}/invalidate") }),
        )
        .route(
            "/lab.Lab/{method}",
            any(|| async { not_yet("gRPC lab.Lab") }),
        )
        .merge(guarded)
        .with_state(desk)
}

async fn admit_operators(
    State(token): State<Option<Arc<str>>>,
    request: Request,
    next: Next,
) -> Response {
    let shown = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    // The scheme's case does not count, the token's does.
    let shown = shown
        .and_then(|shown| shown.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match token {
        Some(token) if shown.map(|(_, shown)| shown.trim()) != Some(&*token) => (
            StatusCode::UNAUTHORIZED,
            [(WWW_AUTHENTICATE, "Bearer")],
            "operators only",
        )
            .into_response(),
        _ => next.run(request).await,
    }
}

async fn effects(State(desk): State<Desk>) -> Json<Value> {
    Json(desk.effects.json())
}

async fn reset(State(desk): State<Desk>) -> StatusCode {
    desk.effects.reset();
    StatusCode::NO_CONTENT
}

async fn metrics(State(desk): State<Desk>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4")],
        desk.metrics.text(),
    )
}

async fn board(State(desk): State<Desk>, RawQuery(query): RawQuery) -> Response {
    match Filter::from_query(query.as_deref().unwrap_or_default()) {
        Ok(filter) => (
            [(CONTENT_TYPE, "application/json")],
            desk.board.json(&filter),
        )
            .into_response(),
        Err(bad) => bad_request(bad.to_string()),
    }
}

async fn claims(State(desk): State<Desk>) -> Response {
    let mut listed = Vec::new();
    let mut from = None;
    loop {
        let page = match desk.store.dyn_scan(from, 1_000).await {
            Ok(page) => page,
            Err(error) => {
                return (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response();
            }
        };
        listed.extend(page.records.iter().map(|record| {
            json!({
                "key": record.key.to_string(),
                "label": label(record),
                "state": record.state.as_str(),
                "token": record.token.get(),
                "since_ms": record.since.as_secs_f64() * 1e3,
                "expires_in_ms": record.expires_in.as_secs_f64() * 1e3,
            })
        }));
        match page.next {
            Some(next) => from = Some(next),
            None => return Json(Value::Array(listed)).into_response(),
        }
    }
}

/// The layer's name and a short prefix of the key. A free record has forgotten whose it was.
fn label(record: &RecordView) -> String {
    match &*record.label {
        "" => format!("free:{}", record.key.prefix()),
        layer => format!("{layer}:{}", record.key.prefix()),
    }
}

#[derive(Debug, Deserialize)]
struct FaultQuery {
    store: Option<String>,
}

async fn faults(State(desk): State<Desk>, Query(query): Query<FaultQuery>) -> Response {
    match query.store.as_deref().map(str::parse::<Fault>) {
        Some(Ok(fault)) => {
            desk.faults.set(fault);
            StatusCode::NO_CONTENT.into_response()
        }
        Some(Err(invalid)) => bad_request(invalid.to_string()),
        None => {
            bad_request("store is missing: ok, down, delay:MS, lose-reply:N or repeat:N".to_owned())
        }
    }
}
