//! For axum: the run's transaction as an extractor.

use axum_core::body::Body;
use axum_core::extract::{FromRef, FromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::request::Parts;
use tower_claim::http::is_grpc;
use tower_claim::{Code, Refusal};

use crate::{BeginError, RunTransaction, Transactions};

/// From the [`Transactions`] in the state. Refused with 400 `key-missing` where no layer runs the request, 503
/// `store-unavailable` where the database begins none: nothing is kept then, and a repeat runs.
impl<S> FromRequestParts<S> for RunTransaction
where
    Transactions: FromRef<S>,
    S: Sync,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let begun = Transactions::from_ref(state).begin(&parts.extensions).await;
        begun.map_err(|error| error.to_response(is_grpc(&parts.headers)))
    }
}

impl BeginError {
    fn to_response(&self, grpc: bool) -> Response {
        let code = match self {
            Self::NoRun => Code::KeyMissing,
            Self::NotLent(_) => Code::HandlerPanicked,
            Self::Store(_) => Code::StoreUnavailable,
        };
        let refusal = Refusal::new(code).with_detail(self.to_string());
        refusal.to_response(grpc).map(Body::from)
    }
}

impl IntoResponse for BeginError {
    fn into_response(self) -> Response {
        self.to_response(false)
    }
}
