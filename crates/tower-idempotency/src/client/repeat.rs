//! Who makes a body that may have to be sent again.

use std::fmt;
use std::future::Future;

use bytes::Bytes;
use http_body::Body;

use super::read::ReadBody;

/// Makes the bodies of all attempts of one call. A body is gone once it is sent, so what makes it again is taken before.
pub trait RepeatBody<B>: Clone + Send + Sync + 'static {
    /// What a body is made of again.
    type Source: Send + 'static;

    /// The body of the first attempt, and what others are made of; `None` where none can be (it streams): the request
    /// is sent once.
    ///
    /// # Cancellation
    ///
    /// Nothing was sent; the body is gone.
    fn begin(&self, body: B) -> impl Future<Output = (B, Option<Self::Source>)> + Send;

    /// The body of another attempt, `None` where there is to be none.
    fn again(&self, source: &Self::Source) -> Option<B>;
}

/// Nothing is sent again by the layer. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRepeat;

impl<B: Send + 'static> RepeatBody<B> for NoRepeat {
    type Source = ();

    async fn begin(&self, body: B) -> (B, Option<()>) {
        (body, None)
    }

    fn again(&self, (): &()) -> Option<B> {
        None
    }
}

/// By the body's own `Clone`: cheap for `Full<Bytes>`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cloned;

impl<B: Clone + Send + 'static> RepeatBody<B> for Cloned {
    type Source = B;

    async fn begin(&self, body: B) -> (B, Option<B>) {
        let source = body.clone();
        (body, Some(source))
    }

    fn again(&self, source: &B) -> Option<B> {
        Some(source.clone())
    }
}

/// By a function, for bodies that are not `Clone`.
#[derive(Clone, Copy)]
pub struct ClonedBy<F>(pub(super) F);

impl<B, F> RepeatBody<B> for ClonedBy<F>
where
    B: Send + 'static,
    F: Fn(&B) -> Option<B> + Clone + Send + Sync + 'static,
{
    type Source = B;

    async fn begin(&self, body: B) -> (B, Option<B>) {
        let source = (self.0)(&body);
        (body, source)
    }

    fn again(&self, source: &B) -> Option<B> {
        (self.0)(source)
    }
}

impl<F> fmt::Debug for ClonedBy<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClonedBy(…)")
    }
}

/// By reading it first, for bodies that cannot be cloned.
#[derive(Clone, Copy)]
pub struct ReadFirst<F> {
    pub(super) at_most: usize,
    pub(super) make: F,
}

impl<B, F> RepeatBody<B> for ReadFirst<F>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
    F: Fn(ReadBody<B>) -> B + Clone + Send + Sync + 'static,
{
    type Source = ReadBody<B>;

    async fn begin(&self, body: B) -> (B, Option<ReadBody<B>>) {
        // One that says itself that it is too long is left alone.
        if body.size_hint().lower() > self.at_most as u64 {
            return (body, None);
        }
        let read = ReadBody::of(body, self.at_most).await;
        let source = read.again();
        ((self.make)(read), source)
    }

    fn again(&self, source: &ReadBody<B>) -> Option<B> {
        source.again().map(&self.make)
    }
}

impl<F> fmt::Debug for ReadFirst<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadFirst")
            .field("at_most", &self.at_most)
            .finish_non_exhaustive()
    }
}
