//! The service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::layer::Config;
use crate::tracked::Tracked;
use crate::{ResponseFuture, StageBody};

/// Gives every request a row on a board. Made by [`StageLayer`](crate::StageLayer).
#[derive(Clone)]
pub struct StageService<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> StageService<S> {
    pub(crate) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }

    pub(crate) fn inner(&self) -> &S {
        &self.inner
    }

    pub(crate) fn track<A>(&self, request: &mut Request<A>) -> Option<Tracked> {
        self.config.track(request)
    }
}

impl<S, A, B> Service<Request<A>> for StageService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<StageBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        match self.track(&mut request) {
            // The call itself may panic or mark: it counts as a poll.
            Some(mut tracked) => {
                let inner = tracked.poll(|| self.inner.call(request));
                ResponseFuture::tracked(inner, tracked)
            }
            None => ResponseFuture::pass(self.inner.call(request)),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for StageService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageService")
            .field("inner", &self.inner)
            .field("config", &self.config)
            .finish()
    }
}
