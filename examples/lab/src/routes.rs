//! The routes that the layers stand around.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on, post, put};
use http::{StatusCode, Uri};
use serde_json::Value;
use tower::ServiceBuilder;
use tower::util::MapRequestLayer;
use tower_idempotency::IdempotencyLayer;
use tower_lease_guard::{Lease, LeaseGuardLayer};
use tower_single_flight::SingleFlightLayer;

use crate::around::Around;
use crate::effects::Effects;
use crate::flags::{BadFlag, Flags};
use crate::handler::{Route, behave};
use crate::ledger::write_under;
use crate::{origin, problem};

pub(crate) fn business(effects: &Effects, layer: &IdempotencyLayer, around: &Around) -> Router {
    let methods = MethodFilter::POST
        .or(MethodFilter::PUT)
        .or(MethodFilter::PATCH)
        .or(MethodFilter::DELETE)
        .or(MethodFilter::GET)
        .or(MethodFilter::HEAD)
        .or(MethodFilter::OPTIONS);
    let layers = ServiceBuilder::new()
        .layer(from_fn(deny))
        .layer(layer.clone())
        .layer(MapRequestLayer::new(|request: http::Request<_>| {
            request.map(Body::new)
        }));
    let route = around.inside(on(methods, order)).layer(layers);
    let route = around.outside(route).with_state(effects.clone());
    Router::new()
        .route("/orders", route.clone())
        .route("/refunds", route)
}

pub(crate) fn announcement(
    effects: &Effects,
    layer: &IdempotencyLayer,
    around: &Around,
) -> MethodRouter {
    let route = around.inside(post(announce)).layer(layer.clone());
    around.outside(route).with_state(effects.clone())
}

pub(crate) fn items(effects: &Effects, layer: &SingleFlightLayer) -> MethodRouter {
    get(item)
        .post(item)
        .layer(layer.clone())
        .with_state(effects.clone())
}

pub(crate) fn account(effects: &Effects, layer: &LeaseGuardLayer, ledger: &Router) -> MethodRouter {
    let state = (effects.clone(), ledger.clone());
    put(write_account)
        .post(write_account)
        .layer(layer.clone())
        .with_state(state)
}

async fn order(State(effects): State<Effects>, request: Request) -> Response {
    answer(&effects, Route::Orders, request).await
}

async fn announce(State(effects): State<Effects>, request: Request) -> Response {
    answer(&effects, Route::Classrooms, request).await
}

async fn answer(effects: &Effects, route: Route, request: Request) -> Response {
    match behave(effects, route, request).await {
        Ok(answer) => answer.into_response(route),
        Err(early) => early,
    }
}

async fn item(State(effects): State<Effects>, request: Request) -> Response {
    match behave(&effects, Route::Items, request).await {
        Ok(answer) => origin::respond(answer),
        Err(early) => early,
    }
}

async fn write_account(
    State((effects, ledger)): State<(Effects, Router)>,
    uri: Uri,
    lease: Lease,
    request: Request,
) -> Response {
    let mut answer = match behave(&effects, Route::Accounts, request).await {
        Ok(answer) => answer,
        Err(early) => return early,
    };
    let writes = !answer.flags.no_write && answer.status.as_u16() < 400;
    let id = uri.path().strip_prefix("/accounts/").unwrap_or_default();
    if writes && let Err(refusal) = write_under(ledger, id, &lease).await {
        return refusal;
    }
    answer
        .json
        .insert("written".to_owned(), Value::Bool(writes));
    answer.into_response(Route::Accounts)
}

/// Takes the flags off the request, or refuses them, before any layer could store or share anything.
pub(crate) async fn take_flags(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match Flags::of(&parts) {
        Ok(flags) => {
            parts.extensions.insert(flags);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(BadFlag(reason)) => problem::bad_request(reason),
    }
}

/// How many bytes the head of a request may have.
const LARGEST_HEAD: usize = 32 << 10;

/// 431 for what hyper still takes on HTTP/1: it stops at 400 KiB there, and at 16 KiB on HTTP/2.
pub(crate) async fn heads_fit(request: Request, next: Next) -> Response {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + ": \r\n".len()
    };
    if request.headers().iter().map(line).sum::<usize>() > LARGEST_HEAD {
        return StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response();
    }
    next.run(request).await
}

/// The stub of an authentication layer.
async fn deny(request: Request, next: Next) -> Response {
    if request
        .headers()
        .get("x-deny")
        .is_some_and(|value| value == "1")
    {
        return StatusCode::FORBIDDEN.into_response();
    }
    next.run(request).await
}
