//! The response future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Response;
use pin_project_lite::pin_project;

use super::FenceBody;

pin_project! {
    /// The response future of [`Fence`](super::Fence).
    ///
    /// Dropping it drops the inner call, and then tells the calls that wait for it. When that happens while
    /// the guard's store is asked, the mark may be raised all the same.
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        kind: Kind<F, R, E>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<F, R, E> {
        // A request that needs no token: nothing is boxed.
        Pass { #[pin] inner: F },
        Refused { response: Option<Response<FenceBody<R>>> },
        Guarded { call: BoxFuture<'static, Result<Response<FenceBody<R>>, E>> },
    }
}

impl<F, R, E> ResponseFuture<F, R, E> {
    pub(crate) fn pass(inner: F) -> Self {
        Self {
            kind: Kind::Pass { inner },
        }
    }

    pub(crate) fn refused(response: Response<FenceBody<R>>) -> Self {
        Self {
            kind: Kind::Refused {
                response: Some(response),
            },
        }
    }

    pub(crate) fn guarded(call: BoxFuture<'static, Result<Response<FenceBody<R>>, E>>) -> Self {
        Self {
            kind: Kind::Guarded { call },
        }
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<FenceBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProj::Pass { inner } => inner
                .poll(cx)
                .map_ok(|response| response.map(FenceBody::pass)),
            KindProj::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                // Polled after it was ready: a broken caller waits for ever rather than being told twice.
                None => Poll::Pending,
            },
            KindProj::Guarded { call } => call.as_mut().poll(cx),
        }
    }
}

impl<F, R, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Pass { .. } => "ResponseFuture::Pass",
            Kind::Refused { .. } => "ResponseFuture::Refused",
            Kind::Guarded { .. } => "ResponseFuture::Guarded",
        })
    }
}
