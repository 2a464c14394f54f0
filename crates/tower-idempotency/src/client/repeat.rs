//! Who clones a body that may have to be sent again.

use std::fmt;

/// Makes the body of another attempt. Called before the first one, since a body is gone once it is sent.
pub trait RepeatBody<B>: Clone + Send + Sync + 'static {
    /// The same body again, `None` where that cannot be (it streams): the request is sent once.
    fn repeat(&self, body: &B) -> Option<B>;
}

/// Nothing is sent again by the layer. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRepeat;

impl<B> RepeatBody<B> for NoRepeat {
    fn repeat(&self, _: &B) -> Option<B> {
        None
    }
}

/// By the body's own `Clone`: cheap for `Full<Bytes>`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cloned;

impl<B: Clone> RepeatBody<B> for Cloned {
    fn repeat(&self, body: &B) -> Option<B> {
        Some(body.clone())
    }
}

/// By a function, for bodies that are not `Clone`.
#[derive(Clone, Copy)]
pub struct ClonedBy<F>(pub(super) F);

impl<B, F> RepeatBody<B> for ClonedBy<F>
where
    F: Fn(&B) -> Option<B> + Clone + Send + Sync + 'static,
{
    fn repeat(&self, body: &B) -> Option<B> {
        (self.0)(body)
    }
}

impl<F> fmt::Debug for ClonedBy<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClonedBy(…)")
    }
}
