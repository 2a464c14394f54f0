//! The response future.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use crate::StageBody;
use crate::tracked::Tracked;

pin_project! {
    /// The future of a [`StageService`](crate::StageService).
    ///
    /// Dropped before it is ready, it ends its row as `cancelled`; after a panic as `panicked`.
    pub struct ResponseFuture<F> {
        // Before `tracked`: what the inner future drops may still mark its row.
        #[pin]
        inner: F,
        tracked: Option<Tracked>,
    }
}

impl<F> ResponseFuture<F> {
    pub(crate) fn pass(inner: F) -> Self {
        Self {
            inner,
            tracked: None,
        }
    }

    pub(crate) fn tracked(inner: F, tracked: Tracked) -> Self {
        Self {
            inner,
            tracked: Some(tracked),
        }
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<StageBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = match this.tracked {
            Some(tracked) => tracked.poll(|| this.inner.poll(cx)),
            None => return this.inner.poll(cx).map_ok(|r| r.map(StageBody::pass)),
        };
        let result = ready!(polled);
        let Some(mut tracked) = this.tracked.take() else {
            return Poll::Ready(result.map(|r| r.map(StageBody::pass)));
        };
        Poll::Ready(match result {
            Ok(response) => {
                tracked.head(&response);
                Ok(response.map(|body| StageBody::tracked(body, tracked)))
            }
            Err(error) => {
                tracked.failed();
                Err(error)
            }
        })
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("tracked", &self.tracked)
            .finish_non_exhaustive()
    }
}
