//! The response body: the lease lasts until its end.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;
use tower_claim::http::ResponseEnd;

use super::handle::{Lease, LeaseLost};
use super::held::Held;
use super::run::Lost;
use crate::BoxError;
use crate::report;

pin_project! {
    /// The response body of [`LeaseGuard`](super::LeaseGuard).
    ///
    /// If no clone of the [`Lease`] is left at the end, the store has answered the release before the last
    /// frame is handed out: who has read the response finds the resource free. If the lease is lost in
    /// mid-stream, the inner body is dropped and this one ends with the error [`LeaseLost`], never cleanly.
    ///
    /// Dropped in mid-stream it drops the inner body, and then tells the keeper to release.
    pub struct LeaseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        Pass { #[pin] body: B },
        Refused { #[pin] body: Full<Bytes> },
        // A body of which nothing is sent (HEAD, 204, 304), dropped before the release; hosts ask it for
        // its length.
        Unread { length: SizeHint, ended: bool },
        Leased { #[pin] leased: Leased<B> },
    }
}

pin_project! {
    struct Leased<B> {
        // The body is the first field: it goes before the lease does.
        #[pin]
        body: Option<B>,
        phase: Phase,
        lost: Lost,
        held: Arc<Held>,
        end: ResponseEnd,
        announced: Option<u64>,
        // Read ahead of the end, given out behind it.
        held_back: VecDeque<Frame<Bytes>>,
        error: Option<BoxError>,
    }
}

enum Phase {
    /// The body runs under the lease.
    Running(Option<Lease>),
    /// The body is gone, the store is being told.
    Releasing(BoxFuture<'static, ()>),
    /// What was held back is given out.
    Over,
}

/// A body that gives more than it announced, or nothing but empty frames behind its end, is not read
/// further ahead than this.
const MOST_HELD_BACK: usize = 4;

impl<B> LeaseBody<B> {
    pub(super) fn pass(body: B) -> Self {
        Self {
            kind: Kind::Pass { body },
        }
    }

    pub(super) fn refused(body: Bytes) -> Self {
        Self {
            kind: Kind::Refused { body: body.into() },
        }
    }
}

impl<B: Body> LeaseBody<B> {
    pub(super) fn unread(body: B) -> Self {
        let (length, ended) = (body.size_hint(), body.is_end_stream());
        drop(body);
        Self {
            kind: Kind::Unread { length, ended },
        }
    }

    pub(super) fn leased(
        body: B,
        lease: Lease,
        lost: Lost,
        held: Arc<Held>,
        end: ResponseEnd,
    ) -> Self {
        // hyper takes the length from the hint where the head has none, and stops reading at it.
        let announced = end.announced().or(body.size_hint().exact());
        Self {
            kind: Kind::Leased {
                leased: Leased {
                    body: Some(body),
                    phase: Phase::Running(Some(lease)),
                    lost,
                    held,
                    end,
                    announced,
                    held_back: VecDeque::new(),
                    error: None,
                },
            },
        }
    }
}

impl<B> Leased<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        loop {
            match this.phase {
                Phase::Running(lease) => {
                    if let Poll::Ready(loss) = this.lost.as_mut().poll(cx) {
                        this.body.set(None);
                        if let Some(lease) = lease.take() {
                            report::lost(&lease, loss);
                        }
                        this.held_back.clear();
                        *this.error = Some(LeaseLost::new(loss).into());
                        *this.phase = Phase::Over;
                        continue;
                    }
                    let polled = match this.body.as_mut().as_pin_mut() {
                        Some(body) => ready!(this.held.enter(|| body.poll_frame(cx))),
                        None => None,
                    };
                    let at_end = match polled {
                        Some(Ok(frame)) => {
                            if let Some(lease) = lease {
                                lease.touch();
                            }
                            this.end.frame(&frame);
                            let ends_here = frame.is_trailers()
                                || this
                                    .body
                                    .as_ref()
                                    .get_ref()
                                    .as_ref()
                                    .is_none_or(Body::is_end_stream);
                            let all_out = this.announced.is_some_and(|all| this.end.bytes() >= all);
                            if !ends_here && !all_out {
                                return Poll::Ready(Some(Ok(frame)));
                            }
                            this.held_back.push_back(frame);
                            // All announced bytes are there, but the body has not said that it ends: it
                            // may have trailers, or work to do. hyper would not poll again.
                            ends_here || this.held_back.len() >= MOST_HELD_BACK
                        }
                        Some(Err(error)) => {
                            this.end.error();
                            *this.error = Some(error.into());
                            true
                        }
                        None => {
                            this.end.none();
                            true
                        }
                    };
                    if at_end {
                        this.body.set(None);
                        *this.phase = match lease.take() {
                            Some(lease) => Phase::Releasing(Box::pin(lease.end())),
                            None => Phase::Over,
                        };
                    }
                }
                Phase::Releasing(release) => {
                    ready!(release.as_mut().poll(cx));
                    *this.phase = Phase::Over;
                }
                Phase::Over => {
                    let frame = this.held_back.pop_front().map(Ok);
                    return Poll::Ready(frame.or_else(|| this.error.take().map(Err)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.phase, Phase::Over) && self.held_back.is_empty() && self.error.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let held: u64 = self
            .held_back
            .iter()
            .filter_map(|frame| frame.data_ref())
            .map(|data| data.len() as u64)
            .sum();
        let mut hint = match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        };
        match hint.exact() {
            // hyper drops a body of no bytes unpolled, and the lease would go after the head.
            Some(0) if matches!(self.phase, Phase::Running(_)) && held == 0 => {
                hint = SizeHint::default()
            }
            Some(exact) => hint.set_exact(exact.saturating_add(held)),
            None => hint.set_lower(0),
        }
        hint
    }
}

impl<B> Body for LeaseBody<B>
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
            KindProj::Unread { length, ended } => {
                (*length, *ended) = (SizeHint::with_exact(0), true);
                Poll::Ready(None)
            }
            KindProj::Leased { leased } => leased.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Pass { body } => body.is_end_stream(),
            Kind::Refused { body } => body.is_end_stream(),
            Kind::Unread { ended, .. } => *ended,
            Kind::Leased { leased } => leased.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Pass { body } => body.size_hint(),
            Kind::Refused { body } => body.size_hint(),
            Kind::Unread { length, .. } => SizeHint::clone(length),
            Kind::Leased { leased } => leased.size_hint(),
        }
    }
}

impl<B: Default> Default for LeaseBody<B> {
    fn default() -> Self {
        Self::pass(B::default())
    }
}

impl<B> fmt::Debug for LeaseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Pass { .. } => "LeaseBody::Pass",
            Kind::Refused { .. } => "LeaseBody::Refused",
            Kind::Unread { .. } => "LeaseBody::Unread",
            Kind::Leased { .. } => "LeaseBody::Leased",
        })
    }
}
