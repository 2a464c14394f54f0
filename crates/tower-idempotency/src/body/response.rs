//! The body the caller gets.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::held::Held;
use super::request::Whole;

pin_project! {
    /// The response body in front of the layer: the inner service's own, one from memory (a replay, a
    /// refusal, a first answer that was kept before it was sent), or one that streams while it is kept.
    /// Trailers survive.
    pub struct ResponseBody<R: Body> {
        #[pin]
        inner: Inner<R>,
    }
}

pin_project! {
    #[project = Projected]
    enum Inner<R: Body> {
        Pass {
            #[pin]
            body: R,
        },
        Whole {
            whole: Whole,
        },
        Fed {
            feed: UnboundedReceiver<Fed<R>>,
        },
        Rest {
            body: Pin<Box<R>>,
        },
        Held {
            held: Held<R>,
        },
    }
}

/// What the task that keeps a response tells the caller's body.
///
/// The channel is unbounded because what goes through it is kept anyway, and so bounded by the cap on kept
/// responses, which counts their frames, too. Were it bounded, a caller that does not read could hold up the record.
pub(crate) enum Fed<R: Body> {
    Frame(Frame<Bytes>),
    /// The last frame of a response whose record stands.
    Last(Frame<Bytes>),
    /// The response is over, and its record stands.
    Over,
    /// Another run took over: its answer is the one that counts, and this one must not look whole.
    Superseded,
    /// The body broke off.
    Failed(R::Error),
    /// The body panicked. Passed on, since an early end would look like a whole response.
    Panicked(Box<dyn Any + Send>),
    /// Nothing is kept from here on: the caller reads the rest at its own speed.
    Rest(Pin<Box<R>>),
    /// The same, but for the end.
    Held(Held<R>),
}

/// The sending side. Dropped without a word about the end, it leaves a body that breaks off.
pub(crate) type Feed<R> = UnboundedSender<Fed<R>>;

impl<R: Body> ResponseBody<R> {
    pub(crate) fn pass(body: R) -> Self {
        Self {
            inner: Inner::Pass { body },
        }
    }

    pub(crate) fn whole(whole: Whole) -> Self {
        Self {
            inner: Inner::Whole { whole },
        }
    }

    pub(crate) fn fed() -> (Feed<R>, Self) {
        let (feed, receiver) = unbounded_channel();
        let inner = Inner::Fed { feed: receiver };
        (feed, Self { inner })
    }
}

impl<R: Body> Inner<R> {
    fn over() -> Self {
        Self::Whole {
            whole: Whole::default(),
        }
    }
}

/// The error of a response body: the inner body's own, or that a response was cut off because it is not, or
/// may not be, the one that was kept.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// A response that had begun was cut off: another run of the same request had taken over, or the process
/// stopped the work that feeds it. The answer that counts is the one a repeat is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CutOff;

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the response was cut off: it is not the one that was kept; repeat the request")
    }
}

impl StdError for CutOff {}

impl<R> Body for ResponseBody<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let own = |frame: Option<Result<_, R::Error>>| frame.map(|frame| frame.map_err(Into::into));
        let fed = match self.as_mut().project().inner.project() {
            Projected::Pass { body } => return body.poll_frame(cx).map(own),
            Projected::Whole { whole } => return Poll::Ready(whole.next().map(Ok)),
            Projected::Rest { body } => return body.as_mut().poll_frame(cx).map(own),
            Projected::Held { held } => {
                let frame = ready!(held.poll_frame(cx));
                if held.is_over() {
                    self.project().inner.set(Inner::over());
                }
                return Poll::Ready(frame);
            }
            Projected::Fed { feed } => ready!(feed.poll_recv(cx)),
        };
        let last = match fed {
            Some(Fed::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
            Some(Fed::Panicked(payload)) => resume_unwind(payload),
            Some(Fed::Rest(body)) => {
                self.as_mut().project().inner.set(Inner::Rest { body });
                return self.poll_frame(cx);
            }
            Some(Fed::Held(held)) => {
                self.as_mut().project().inner.set(Inner::Held { held });
                return self.poll_frame(cx);
            }
            Some(Fed::Last(frame)) => Some(Ok(frame)),
            Some(Fed::Over) => None,
            Some(Fed::Failed(error)) => Some(Err(error.into())),
            Some(Fed::Superseded) | None => Some(Err(CutOff.into())),
        };
        self.project().inner.set(Inner::over());
        Poll::Ready(last)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Pass { body } => body.is_end_stream(),
            Inner::Whole { whole } => whole.is_over(),
            Inner::Fed { .. } | Inner::Held { .. } => false,
            Inner::Rest { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Pass { body } => body.size_hint(),
            Inner::Whole { whole } => whole.size_hint(),
            Inner::Fed { .. } | Inner::Held { .. } => SizeHint::new(),
            Inner::Rest { body } => body.size_hint(),
        }
    }
}

impl<R: Body> Default for ResponseBody<R> {
    fn default() -> Self {
        Self::whole(Whole::default())
    }
}

impl<R: Body> fmt::Debug for ResponseBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.inner {
            Inner::Pass { .. } => "ResponseBody::Pass",
            Inner::Whole { .. } => "ResponseBody::Whole",
            Inner::Fed { .. } => "ResponseBody::Fed",
            Inner::Rest { .. } => "ResponseBody::Rest",
            Inner::Held { .. } => "ResponseBody::Held",
        })
    }
}
