//! `Lease` as an axum extractor.

use std::fmt;

use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::request::Parts;
use tower_claim::http::is_grpc;
use tower_claim::{Code, Refusal};

use super::handle::{Lease, LeaseLost};
use crate::fence::FenceError;

/// The innermost lease of the request; `Option<Lease>` where the route may be called without one.
impl<S: Send + Sync> FromRequestParts<S> for Lease {
    type Rejection = MissingLease;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingLease> {
        let lease = parts.extensions.get::<Lease>().cloned();
        lease.ok_or_else(|| MissingLease {
            grpc: is_grpc(&parts.headers),
        })
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for Lease {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &S,
    ) -> Result<Option<Self>, std::convert::Infallible> {
        Ok(parts.extensions.get::<Lease>().cloned())
    }
}

/// A handler asks for a [`Lease`], and no layer took one for this request: 500 `lease-missing`, the
/// application is wired wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingLease {
    grpc: bool,
}

impl fmt::Display for MissingLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this handler needs a lease: put LeaseGuardLayer around its route, with a key function that \
             names a resource for this request, or ask for Option<Lease>",
        )
    }
}

impl std::error::Error for MissingLease {}

impl IntoResponse for MissingLease {
    fn into_response(self) -> Response {
        Refusal::new(Code::LeaseMissing)
            .with_detail(self.to_string())
            .to_response(self.grpc)
            .map(Into::into)
    }
}

impl IntoResponse for LeaseLost {
    fn into_response(self) -> Response {
        self.refusal().into_response()
    }
}

impl IntoResponse for FenceError {
    fn into_response(self) -> Response {
        self.refusal().into_response()
    }
}
