//! The response future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Response;
use pin_project_lite::pin_project;

use super::LeaseBody;

pin_project! {
    /// The response future of [`LeaseGuard`](super::LeaseGuard).
    ///
    /// Dropping it drops the inner call, and then tells the keeper to release the lease; no await, no task.
    /// A claim that is under way is given back by its nonce when its answer comes.
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        kind: Kind<F, R, E>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<F, R, E> {
        // A request that needs no lease: nothing is boxed.
        Pass { #[pin] inner: F },
        Refused { response: Option<Response<LeaseBody<R>>> },
        Leased { call: BoxFuture<'static, Result<Response<LeaseBody<R>>, E>> },
    }
}

impl<F, R, E> ResponseFuture<F, R, E> {
    pub(super) fn pass(inner: F) -> Self {
        Self {
            kind: Kind::Pass { inner },
        }
    }

    pub(super) fn refused(response: Response<LeaseBody<R>>) -> Self {
        Self {
            kind: Kind::Refused {
                response: Some(response),
            },
        }
    }

    pub(super) fn leased(call: BoxFuture<'static, Result<Response<LeaseBody<R>>, E>>) -> Self {
        Self {
            kind: Kind::Leased { call },
        }
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<LeaseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProj::Pass { inner } => inner
                .poll(cx)
                .map_ok(|response| response.map(LeaseBody::pass)),
            KindProj::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                // Polled after it was ready: a broken caller waits for ever rather than being told twice.
                None => Poll::Pending,
            },
            KindProj::Leased { call } => call.as_mut().poll(cx),
        }
    }
}

impl<F, R, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Pass { .. } => "ResponseFuture::Pass",
            Kind::Refused { .. } => "ResponseFuture::Refused",
            Kind::Leased { .. } => "ResponseFuture::Leased",
        })
    }
}
