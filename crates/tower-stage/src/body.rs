//! The response body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::tracked::Tracked;

pin_project! {
    /// The inner body, followed to its end. Adds nothing, holds nothing back: the size hint and
    /// `is_end_stream` are the inner body's, else a host would frame the response in another way.
    ///
    /// Dropped in mid-stream, it ends its row as `client_gone`; after a panic as `panicked`. The row ends
    /// when the last frame is handed to the host, not when it is on the wire.
    #[derive(Debug)]
    pub struct StageBody<B> {
        #[pin]
        inner: B,
        tracked: Option<(Tracked, IsEndStream<B>)>,
    }

    impl<B> PinnedDrop for StageBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some((mut tracked, is_end_stream)) = this.tracked.take() {
                tracked.dropped(|| is_end_stream(&this.inner));
            }
        }
    }
}

/// [`Body::is_end_stream`], for the drop: a `Drop` may not ask for more than the struct does.
type IsEndStream<B> = fn(&B) -> bool;

impl<B> StageBody<B> {
    pub(crate) fn pass(inner: B) -> Self {
        Self {
            inner,
            tracked: None,
        }
    }

    pub(crate) fn tracked(inner: B, tracked: Tracked) -> Self
    where
        B: Body,
    {
        let open = tracked.is_open();
        Self {
            inner,
            tracked: open.then_some((tracked, B::is_end_stream)),
        }
    }
}

impl<B: Default> Default for StageBody<B> {
    fn default() -> Self {
        Self::pass(B::default())
    }
}

impl<B: Body> Body for StageBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some((tracked, _)) = this.tracked else {
            return this.inner.poll_frame(cx);
        };
        let frame = ready!(tracked.poll(|| this.inner.as_mut().poll_frame(cx)));
        tracked.frame(frame.as_ref(), this.inner.is_end_stream());
        if !tracked.is_open() {
            *this.tracked = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
