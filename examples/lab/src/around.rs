//! What stands around the idempotency layers on command: a timeout outside, troublesome layers inside.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use http::header::CONTENT_LENGTH;
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, Uri};
use tower_idempotency::NoEffect;
use tower_stage::StageHandle;

use crate::options::{Inner, Options};

/// Clones are of one service: a nonce that one of its routes has seen is known to all.
#[derive(Debug, Clone)]
pub(crate) struct Around {
    outer_timeout: Duration,
    inner: Option<Inner>,
    nonces: Nonces,
}

/// The nonces that this process has seen.
type Nonces = Arc<Mutex<HashSet<HeaderValue>>>;

impl Around {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            outer_timeout: options.outer_timeout,
            inner: options.inner,
            nonces: Nonces::default(),
        }
    }

    /// To be called before the idempotency layer is added.
    pub(crate) fn inside<S: Clone + Send + Sync + 'static>(
        &self,
        route: MethodRouter<S>,
    ) -> MethodRouter<S> {
        match self.inner {
            None => route,
            Some(Inner::Nonce) => route.layer(from_fn_with_state(self.nonces.clone(), used_once)),
            Some(Inner::Rewrite) => route.layer(from_fn(rewrite)),
        }
    }

    /// To be called when the idempotency layer was added.
    pub(crate) fn outside<S: Clone + Send + Sync + 'static>(
        &self,
        route: MethodRouter<S>,
    ) -> MethodRouter<S> {
        if self.outer_timeout.is_zero() {
            return route;
        }
        route.layer(from_fn_with_state(self.outer_timeout, in_time))
    }
}

/// Gives up on what takes too long, by dropping it.
async fn in_time(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let stage = request.extensions().get::<StageHandle>().cloned();
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            if let Some(stage) = stage {
                stage.timed_out();
            }
            (StatusCode::GATEWAY_TIMEOUT, "the outer timeout fired").into_response()
        }
    }
}

/// The check of one-time tokens that eats an honest retry where it stands outside (openid/authzen #664).
async fn used_once(State(seen): State<Nonces>, request: Request, next: Next) -> Response {
    let is_new = request.headers().get("x-nonce").is_none_or(|nonce| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(nonce.clone())
    });
    if is_new {
        return next.run(request).await;
    }
    let mut refused = (StatusCode::UNAUTHORIZED, "this X-Nonce was used before").into_response();
    refused.extensions_mut().insert(NoEffect);
    refused
}

/// Changes all that a key or a fingerprint could be made of a second time
/// (aws-powertools/powertools-lambda-typescript #5715).
async fn rewrite(request: Request, next: Next) -> Response {
    const BODY: &str = "rewritten";
    let (mut parts, _) = request.into_parts();
    let path = match parts.uri.query() {
        Some(query) => format!("/rewritten?{query}"),
        None => "/rewritten".to_owned(),
    };
    let mut uri = parts.uri.into_parts();
    uri.path_and_query = PathAndQuery::try_from(path).ok();
    parts.uri = Uri::from_parts(uri).unwrap_or_default();
    let key = HeaderValue::from_static("rewritten");
    parts.headers.insert("idempotency-key", key);
    let length = HeaderValue::from(BODY.len());
    parts.headers.insert(CONTENT_LENGTH, length);
    next.run(Request::from_parts(parts, Body::from(BODY))).await
}
