//! One call of a service that was never asked whether it is ready.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

pin_project! {
    /// Waits until the service is ready, then calls it. Dropping it drops both.
    #[project = OneshotProj]
    pub(crate) enum Oneshot<S, Req>
    where
        S: Service<Req>,
    {
        Waiting { service: S, request: Option<Req> },
        Called { #[pin] future: S::Future },
    }
}

impl<S: Service<Req>, Req> Oneshot<S, Req> {
    pub(crate) fn new(service: S, request: Req) -> Self {
        Self::Waiting {
            service,
            request: Some(request),
        }
    }
}

impl<S: Service<Req>, Req> Future for Oneshot<S, Req> {
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let future = match self.as_mut().project() {
                OneshotProj::Called { future } => return future.poll(cx),
                OneshotProj::Waiting { service, request } => {
                    ready!(service.poll_ready(cx))?;
                    match request.take() {
                        Some(request) => service.call(request),
                        // The service panicked when it was called, and this is polled again.
                        None => return Poll::Pending,
                    }
                }
            };
            self.set(Self::Called { future });
        }
    }
}
