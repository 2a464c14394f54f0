//! The lab's own refusals: of flags and options, and for operators.

use axum::response::{IntoResponse, Response};
use http::StatusCode;

/// 400 with a reason.
pub(crate) fn bad_request(reason: String) -> Response {
    (StatusCode::BAD_REQUEST, reason).into_response()
}

/// 501 for what the contract has and this build has not.
pub(crate) fn not_yet(name: &str) -> Response {
    (StatusCode::NOT_IMPLEMENTED, format!("not yet: {name}")).into_response()
}
