//! For axum: the run's transaction as an extractor.

use axum_core::body::Body;
use axum_core::extract::{FromRef, FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::request::Parts;
use tower_claim::http::is_grpc;
use tower_claim::transaction::BeginError;

use crate::{RunTransaction, Transactions, WorkError};

/// From the [`Transactions`] in the state. Refused with 400 `key-missing` where no layer runs the request, 503
/// `store-unavailable` where the database begins none: nothing is kept then, and a repeat runs. A second one in
/// one run is a mistake of the program: 500. `Option<RunTransaction>` where a key is optional.
impl<S> FromRequestParts<S> for RunTransaction
where
    Transactions: FromRef<S>,
    S: Sync,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let begun = Transactions::from_ref(state).begin(&parts.extensions).await;
        begun.map_err(|error| refused(&error, parts))
    }
}

/// `None` for a request without a key: nobody would end a transaction of the layer's, so the handler begins its own.
/// Refused like the other in any other case.
impl<S> OptionalFromRequestParts<S> for RunTransaction
where
    Transactions: FromRef<S>,
    S: Sync,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Option<Self>, Response> {
        let begun = Transactions::from_ref(state).begin(&parts.extensions).await;
        match begun {
            Ok(transaction) => Ok(Some(transaction)),
            Err(BeginError::NoRun) => Ok(None),
            Err(error) => Err(refused(&error, parts)),
        }
    }
}

fn refused(error: &BeginError, parts: &Parts) -> Response {
    let refusal = error.to_refusal().to_response(is_grpc(&parts.headers));
    refusal.map(Body::from)
}

impl IntoResponse for WorkError {
    fn into_response(self) -> Response {
        self.conflict().to_response().map(Body::from)
    }
}
