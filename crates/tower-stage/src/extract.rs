//! The handle as an extractor of axum.

use std::convert::Infallible;

use axum_core::extract::FromRequestParts;
use http::request::Parts;

use crate::StageHandle;

/// The request's handle; an inert one when no [`StageLayer`](crate::StageLayer) is above.
impl<S: Sync> FromRequestParts<S> for StageHandle {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(StageHandle::of(&parts.extensions))
    }
}
