//! What a request is to do without the store.

use std::error::Error as StdError;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower_claim::StoreError;
use tower_service::Service;

use crate::body::{RequestBody, ResponseBody};
use crate::execute::{Answer, Inner};
use crate::reply::{Responder, Status};
use crate::shared::Shared;
use crate::upload::Upload;

/// What a request with a key does when the store does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnStoreDown {
    /// Refuses (503 `store-unavailable`): nothing runs. The default.
    #[default]
    Refuse,
    /// Runs without a claim, as if the layer were not there. **A repeat runs again**, also of work that was done
    /// while the store was up. See [`on_store_down`](crate::IdempotencyBuilder::on_store_down).
    RunUnprotected,
}

impl Shared {
    /// Whether a request may run though its claim failed in this way. A store that answers that it is full, or that
    /// a record cannot be read, is up: the record may be of this very work.
    pub(crate) fn runs_unprotected(&self, error: &StoreError) -> bool {
        self.on_store_down == OnStoreDown::RunUnprotected
            && matches!(error, StoreError::Unavailable(_) | StoreError::Ambiguous(_))
    }
}

/// Runs the handler without a claim, and says so.
pub(crate) async fn run_unprotected<S, B, R>(
    shared: &Shared,
    responder: &Responder,
    inner: Inner<S>,
    parts: Parts,
    upload: Upload<B>,
) -> Answer<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
    R: Body<Data = Bytes>,
{
    let request = Request::from_parts(parts, upload.into_body(shared));
    let mut response = inner.call(request).await?;
    responder.tell(response.headers_mut(), Status::Unprotected);
    Ok(response.map(ResponseBody::pass))
}
