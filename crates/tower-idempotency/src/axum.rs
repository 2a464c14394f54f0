//! For axum: the run as an extractor, a refused point of no return as a response.

use std::convert::Infallible;

use axum_core::body::Body;
use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::request::Parts;
use tower_claim::http::is_grpc;
use tower_claim::{Code, Refusal};

use crate::{IdempotentRun, NoEffect, PointRefused};

/// Refused where no idempotency layer ran this request: 400 `key-missing`, whose detail tells a request
/// without a key from an application that is wired wrongly. `Option<IdempotentRun>` where a key is optional. A layer that is
/// switched off is no reason: the run tells that it [is not guarded](IdempotentRun::is_guarded).
impl<S: Sync> FromRequestParts<S> for IdempotentRun {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        parts.extensions.get().cloned().ok_or_else(|| {
            let refusal = Refusal::new(Code::KeyMissing)
                .with_detail(
                    "this handler runs with a business key only; if the request has one, put IdempotencyLayer \
                     around the handler's route, or ask for Option<IdempotentRun>",
                );
            refusal.to_response(is_grpc(&parts.headers)).map(Body::from)
        })
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for IdempotentRun {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

impl IntoResponse for PointRefused {
    fn into_response(self) -> Response {
        let mut response = self.to_refusal().to_response(false).map(Body::from);
        response.extensions_mut().insert(NoEffect);
        response
    }
}
