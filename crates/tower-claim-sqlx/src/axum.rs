//! For axum: the run's transaction as an extractor.

use axum_core::body::Body;
use axum_core::extract::{FromRef, FromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::request::Parts;
use tower_claim::http::is_grpc;

use crate::{RunTransaction, Transactions, WorkError};

/// From the [`Transactions`] in the state. Refused with 400 `key-missing` where no layer runs the request, 503
/// `store-unavailable` where the database begins none: nothing is kept then, and a repeat runs. A second one in
/// one run is a mistake of the program: 500.
impl<S> FromRequestParts<S> for RunTransaction
where
    Transactions: FromRef<S>,
    S: Sync,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let begun = Transactions::from_ref(state).begin(&parts.extensions).await;
        begun.map_err(|error| {
            let refusal = error.to_refusal().to_response(is_grpc(&parts.headers));
            refusal.map(Body::from)
        })
    }
}

impl IntoResponse for WorkError {
    fn into_response(self) -> Response {
        self.conflict().to_response().map(Body::from)
    }
}
