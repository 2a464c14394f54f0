//! A body that is read before it is sent, so that it can be sent again.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::body::Whole;

/// A body that was read, up to a bound: what of it was read, and then the rest, if there is one. Its trailers and its
/// error are those of the body that was read. What
/// [`wait_for_outcome_read`](crate::IdempotencyKeyBuilder::wait_for_outcome_read) makes your client's body of.
pub struct ReadBody<B: Body> {
    whole: Whole,
    /// Over the bound, or broken off.
    rest: Option<Pin<Box<B>>>,
    broken: Option<B::Error>,
    /// Whether it said its length itself: gRPC does not, and HTTP/1 frames it by that.
    tells_length: bool,
}

impl<B> ReadBody<B>
where
    B: Body<Data = Bytes>,
{
    /// Reads up to so many bytes.
    pub(super) async fn of(body: B, at_most: usize) -> Self {
        let mut read = Self {
            whole: Whole::default(),
            rest: None,
            broken: None,
            tells_length: body.size_hint().exact().is_some(),
        };
        let mut body = Box::pin(body);
        let mut length = 0_usize;
        while let Some(frame) = body.frame().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => {
                    length = length.saturating_add(data.len());
                    if !data.is_empty() {
                        read.whole.chunks.push_back(data);
                    }
                    if length > at_most {
                        read.rest = Some(body);
                        return read;
                    }
                }
                Ok(Err(frame)) => read.whole.trailers = frame.into_trailers().ok(),
                Err(error) => {
                    read.broken = Some(error);
                    return read;
                }
            }
        }
        read
    }

    /// The same again, where all of it was read.
    pub(super) fn again(&self) -> Option<Self> {
        let is_whole = self.rest.is_none() && self.broken.is_none();
        is_whole.then(|| Self {
            whole: self.whole.clone(),
            rest: None,
            broken: None,
            tells_length: self.tells_length,
        })
    }
}

impl<B> Body for ReadBody<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if let Some(frame) = this.whole.next() {
            return Poll::Ready(Some(Ok(frame)));
        }
        match &mut this.rest {
            Some(rest) => rest.as_mut().poll_frame(cx),
            None => Poll::Ready(this.broken.take().map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.whole.is_over()
            && self.broken.is_none()
            && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.whole.size_hint();
        let rest = self.rest.as_ref().map(|rest| rest.size_hint());
        let lower = read.lower() + rest.map_or(0, |rest| rest.lower());
        if self.tells_length && self.broken.is_none() {
            return SizeHint::with_exact(lower);
        }
        let mut hint = SizeHint::new();
        hint.set_lower(lower);
        hint
    }
}

/// Nothing of it is pinned in place.
impl<B: Body> Unpin for ReadBody<B> {}

impl<B: Body> fmt::Debug for ReadBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBody")
            .field("is_whole", &self.rest.is_none())
            .finish_non_exhaustive()
    }
}
