//! How the reading of a response ends.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tower_claim::http::{End as Ended, ResponseEnd};

use super::tape::Tape;
use crate::body::{Fed, ResponseBody};

/// How the reading of a body ended.
pub(super) enum End<E> {
    Whole,
    /// Before the bytes that its head announced: the host breaks the connection there, so nobody has the answer.
    Short,
    /// With this frame it is over the cap.
    Over(Frame<Bytes>),
    /// It lasts longer than the claim can be held.
    Outlasted,
    Broken(Broken<E>),
}

impl<E> End<E> {
    /// Of a body that is over.
    pub(super) fn of(mut announced: ResponseEnd, tape: &Tape) -> Self {
        announced.data(tape.bytes() as u64);
        match announced.dropped(true) {
            Ended::Short => Self::Short,
            _ => Self::Whole,
        }
    }

    /// A body that shows what was read, and then what comes.
    pub(super) fn into_body<R>(self, mut tape: Tape, rest: Pin<Box<R>>) -> ResponseBody<R>
    where
        R: Body<Data = Bytes, Error = E>,
    {
        let next = match self {
            Self::Whole => return ResponseBody::whole(tape.into_whole()),
            Self::Short => {
                let trailers = tape.trailers.take();
                vec![trailers.map_or(Fed::Over, |trailers| Fed::Last(Frame::trailers(trailers)))]
            }
            Self::Over(frame) => vec![Fed::Frame(frame), Fed::Rest(rest)],
            Self::Outlasted => vec![Fed::Rest(rest)],
            Self::Broken(broken) => vec![broken.into_fed()],
        };
        let (feed, fed) = tape.into_fed();
        for next in next {
            let _ = feed.send(next);
        }
        fed
    }
}

/// The body broke off: that is no outcome.
pub(super) enum Broken<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

impl<E> Broken<E> {
    pub(super) fn is_panic(&self) -> bool {
        matches!(self, Self::Panic(_))
    }

    pub(super) fn into_fed<R: Body<Error = E>>(self) -> Fed<R> {
        match self {
            Self::Error(error) => Fed::Failed(error),
            Self::Panic(payload) => Fed::Panicked(payload),
        }
    }
}

pub(super) async fn next_frame<R>(
    body: &mut Pin<Box<R>>,
) -> Option<Result<Frame<Bytes>, Broken<R::Error>>>
where
    R: Body<Data = Bytes>,
{
    let frame = AssertUnwindSafe(body.frame()).catch_unwind().await;
    match frame {
        Ok(frame) => frame.map(|frame| frame.map_err(Broken::Error)),
        Err(payload) => Some(Err(Broken::Panic(payload))),
    }
}
