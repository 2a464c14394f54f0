//! The service.

use std::error::Error as StdError;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::{BoxError, RequestBody, ResponseBody, UploadFate};
use crate::entry::Entry;
use crate::execute::{Inner, guarded};
use crate::future::ResponseFuture;
use crate::reply::Status;
use crate::shared::Shared;
use crate::stage::Row;
use crate::unguarded::unguarded;
use crate::weak::Warned;

/// Runs each business request once. Made by [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Clone)]
pub struct Idempotency<S> {
    inner: S,
    shared: Arc<Shared>,
    warned: Warned,
}

impl<S> Idempotency<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self {
            inner,
            shared,
            warned: Warned::default(),
        }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service that was polled ready goes into the call, a fresh clone takes its place: the clone has not been
    /// polled, and calling it instead would break its contract.
    fn take_ready(&mut self) -> Inner<S>
    where
        S: Clone,
    {
        let fresh = self.inner.clone();
        Inner::Ready(mem::replace(&mut self.inner, fresh))
    }
}

impl<S, B, R> Service<Request<B>> for Idempotency<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        match self.shared.look_at(&parts, &self.warned) {
            entry @ (Entry::Pass | Entry::Ignore) => {
                let is_told = matches!(entry, Entry::Ignore) && self.shared.tell_status;
                let request = Request::from_parts(parts, RequestBody::pass(body));
                ResponseFuture::pass(self.inner.call(request), is_told)
            }
            Entry::Unguarded(named) => {
                let ready = self.take_ready();
                let shared = Arc::clone(&self.shared);
                let body = (RequestBody::pass(body), UploadFate::default());
                let run = unguarded(shared, ready, parts, body, named, Status::Ignored);
                ResponseFuture::guarded(Box::pin(run))
            }
            Entry::Refuse(refusal) => {
                // What was polled ready may hold a place, and nobody calls it now: a kept-alive connection keeps this
                // service as long as it is idle.
                self.inner = self.inner.clone();
                Row::of(&parts.extensions).rejected();
                let refusal = self.shared.refused(refusal);
                let meter = &self.shared.counters.meter;
                meter.answered(None, refusal.code().name());
                ResponseFuture::ready(self.shared.responder(&parts).respond(refusal))
            }
            Entry::Guard(ticket) => {
                let ready = self.take_ready();
                let shared = Arc::clone(&self.shared);
                ResponseFuture::guarded(Box::pin(guarded(shared, ready, parts, body, ticket)))
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Idempotency<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
