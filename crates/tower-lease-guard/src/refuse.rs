//! Refusals of both layers.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use tower_claim::http::RenderRefusal;
use tower_claim::{Code, Refusal};

use crate::token::MAX_RESOURCE;

/// Makes responses of refusals, with the user's own text where there is one.
#[derive(Clone, Default)]
pub(crate) struct Refuse(Option<RenderRefusal>);

impl Refuse {
    pub(crate) fn with<F>(render: F) -> Self
    where
        F: Fn(&Refusal, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    {
        Self(Some(Arc::new(render)))
    }

    pub(crate) fn respond(&self, refusal: &Refusal, grpc: bool) -> Response<Bytes> {
        refusal.to_response_by(self.0.as_ref(), grpc)
    }
}

impl fmt::Debug for Refuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "custom"
        } else {
            "default"
        })
    }
}

/// The key function named something that cannot be a resource.
pub(crate) fn key_invalid() -> Refusal {
    Refusal::new(Code::KeyInvalid).with_detail(format!(
        "a resource is named by 1 to {MAX_RESOURCE} bytes without control characters"
    ))
}
