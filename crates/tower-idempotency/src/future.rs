//! The future of a call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use crate::body::ResponseBody;
use crate::reply::tell_ignored;

pin_project! {
    /// The future of a call through the layer.
    ///
    /// # Cancellation
    ///
    /// Dropped before the handler was started (while the body is read, while the key is claimed, while it
    /// waits for another run), it leaves nothing behind. A started handler runs on to its end and its
    /// outcome is kept. A request that is none of the layer's business is cancelled like without it.
    pub struct ResponseFuture<F, R: Body, E> {
        #[pin]
        inner: Inner<F, R, E>,
    }
}

pin_project! {
    #[project = Projected]
    enum Inner<F, R: Body, E> {
        Pass {
            #[pin]
            call: F,
            // Whether its answer says that its key was not looked at.
            is_told: bool,
        },
        Ready {
            response: Option<Response<ResponseBody<R>>>,
        },
        Guarded {
            guarded: BoxFuture<'static, Result<Response<ResponseBody<R>>, E>>,
        },
    }
}

impl<F, R: Body, E> ResponseFuture<F, R, E> {
    pub(crate) fn pass(call: F, is_told: bool) -> Self {
        Self {
            inner: Inner::Pass { call, is_told },
        }
    }

    pub(crate) fn ready(response: Response<ResponseBody<R>>) -> Self {
        Self {
            inner: Inner::Ready {
                response: Some(response),
            },
        }
    }

    pub(crate) fn guarded(
        guarded: BoxFuture<'static, Result<Response<ResponseBody<R>>, E>>,
    ) -> Self {
        Self {
            inner: Inner::Guarded { guarded },
        }
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().inner.project() {
            Projected::Pass { call, is_told } => call.poll(cx).map_ok(|mut response| {
                if *is_told {
                    tell_ignored(response.headers_mut());
                }
                response.map(ResponseBody::pass)
            }),
            Projected::Ready { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => Poll::Pending, // polled after it was ready
            },
            Projected::Guarded { guarded } => guarded.as_mut().poll(cx),
        }
    }
}

impl<F, R: Body, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.inner {
            Inner::Pass { .. } => "ResponseFuture::Pass",
            Inner::Ready { .. } => "ResponseFuture::Ready",
            Inner::Guarded { .. } => "ResponseFuture::Guarded",
        })
    }
}
