//! The response body: a stream is still part of the call.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

use super::registry::{Cut, Signal, Ticket};
use crate::BoxError;

pin_project! {
    /// The response body of [`Fence`](super::Fence).
    ///
    /// A body of known length is finished work and passes as it is. A stream may still write, so its call
    /// lasts until it ends: when a newer token is admitted, the stream is dropped, and ends for its client
    /// with the error [`Superseded`].
    pub struct FenceBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        Pass { #[pin] body: B },
        Refused { #[pin] body: Full<Bytes> },
        Stream { stream: Arc<Stream<B>> },
    }
}

impl<B> FenceBody<B> {
    pub(crate) fn pass(body: B) -> Self {
        Self {
            kind: Kind::Pass { body },
        }
    }

    pub(crate) fn refused(body: Bytes) -> Self {
        Self {
            kind: Kind::Refused { body: body.into() },
        }
    }
}

impl<B: Send + 'static> FenceBody<B> {
    pub(crate) fn stream(body: B, ticket: Ticket) -> Self {
        let signal = ticket.signal().clone();
        let stream = Arc::new(Stream {
            state: Mutex::new(State::Running {
                body: Box::pin(body),
                _ticket: ticket,
            }),
            signal: signal.clone(),
        });
        let weak = Arc::downgrade(&stream);
        signal.set_body(weak);
        if signal.is_cancelled() {
            // Cancelled while the call turned into this body: whoever cancelled did not see it yet.
            stream.cut_unless_locked();
        }
        Self {
            kind: Kind::Stream { stream },
        }
    }
}

/// A body that can be dropped from outside, so that a client that reads slowly cannot keep a newer owner
/// waiting.
struct Stream<B> {
    state: Mutex<State<B>>,
    signal: Arc<Signal>,
}

enum State<B> {
    /// The ticket goes after the body.
    Running {
        body: Pin<Box<B>>,
        _ticket: Ticket,
    },
    /// Cut from outside; who reads is still to be told.
    Cut,
    Over,
}

impl<B: Send> Cut for Stream<B> {
    fn cut(&self) {
        self.cut_unless_locked();
    }
}

impl<B> Stream<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut_unless_locked(&self) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // It is polled or looked at right now; who does that sees the signal when it has let go.
            Err(TryLockError::WouldBlock) => return,
        };
        if let State::Running { .. } = *state {
            let running = mem::replace(&mut *state, State::Cut);
            drop(state);
            drop(running);
        }
    }

    /// Drops the body and its ticket. Not under the lock: that may wake whoever waits for this.
    fn end(&self) {
        let before = mem::replace(&mut *self.lock(), State::Over);
        drop(before);
    }
}

impl<B> Stream<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let cancelled = self.signal.poll_cancelled(cx);
        let polled = match &mut *self.lock() {
            State::Running { body, .. } if !cancelled => body.as_mut().poll_frame(cx),
            State::Running { .. } | State::Cut => Poll::Pending,
            State::Over => return Poll::Ready(None),
        };
        if cancelled || self.signal.is_cancelled() {
            self.end();
            return Poll::Ready(Some(Err(Superseded.into())));
        }
        if let Poll::Ready(None | Some(Err(_))) = polled {
            self.end();
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }
}

impl<B: Body> Stream<B> {
    fn is_end_stream(&self) -> bool {
        let ended = match &*self.lock() {
            State::Running { body, .. } => body.is_end_stream(),
            State::Cut => false,
            State::Over => return true,
        };
        let cancelled = self.signal.is_cancelled();
        if cancelled {
            // Whoever cancelled may have come while we looked.
            self.cut_unless_locked();
        }
        ended && !cancelled
    }
}

impl<B> Body for FenceBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            KindProj::Pass { body } => body
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(Into::into))),
            KindProj::Refused { body } => body
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            KindProj::Stream { stream } => stream.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Pass { body } => body.is_end_stream(),
            Kind::Refused { body } => body.is_end_stream(),
            Kind::Stream { stream } => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Pass { body } => body.size_hint(),
            Kind::Refused { body } => body.size_hint(),
            Kind::Stream { .. } => SizeHint::default(),
        }
    }
}

impl<B: Default> Default for FenceBody<B> {
    fn default() -> Self {
        Self::pass(B::default())
    }
}

impl<B> fmt::Debug for FenceBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Pass { .. } => "FenceBody::Pass",
            Kind::Refused { .. } => "FenceBody::Refused",
            Kind::Stream { .. } => "FenceBody::Stream",
        })
    }
}

/// A newer fencing token was admitted: this response was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Superseded;

impl fmt::Display for Superseded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a newer fencing token was admitted, this response was cut off")
    }
}

impl std::error::Error for Superseded {}

#[cfg(test)]
mod tests;
