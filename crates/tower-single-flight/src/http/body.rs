//! The response body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response that came through a [`SingleFlightLayer`](crate::SingleFlightLayer): the
    /// inner body as it is, or the bytes that were collected for all who waited.
    pub struct FlightBody<B>
    where
        B: Body,
    {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B>
    where
        B: Body,
    {
        Inner { #[pin] body: B },
        Whole { data: Option<Bytes>, trailers: Option<HeaderMap> },
        Resumed { data: Option<Bytes>, rest: Rest<B> },
    }
}

/// How a body goes on after what was taken from its beginning.
pub(super) enum Rest<B: Body> {
    Body(Pin<Box<B>>),
    /// It had failed. Never dropped in silence: the reader must not see a clean end.
    Failed(B::Error),
    /// It is over, this many bytes too early.
    Ended {
        missing: u64,
    },
}

impl<B: Body> FlightBody<B> {
    pub(super) fn inner(body: B) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }

    pub(super) fn whole(data: Option<Bytes>, trailers: Option<HeaderMap>) -> Self {
        let data = data.filter(|data| !data.is_empty());
        Self {
            kind: Kind::Whole { data, trailers },
        }
    }

    pub(super) fn resumed(data: Option<Bytes>, rest: Rest<B>) -> Self {
        let data = data.filter(|data| !data.is_empty());
        Self {
            kind: Kind::Resumed { data, rest },
        }
    }
}

/// An empty body.
impl<B: Body> Default for FlightBody<B> {
    fn default() -> Self {
        Self::whole(None, None)
    }
}

impl<B: Body<Data = Bytes>> Body for FlightBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Inner { body } => body.poll_frame(cx),
            KindProj::Whole { data, trailers } => {
                let frame = match data.take() {
                    Some(data) => Some(Frame::data(data)),
                    None => trailers.take().map(Frame::trailers),
                };
                Poll::Ready(frame.map(Ok))
            }
            KindProj::Resumed { data, rest } => {
                if let Some(data) = data.take() {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                match rest {
                    Rest::Body(body) => body.as_mut().poll_frame(cx),
                    Rest::Ended { .. } => Poll::Ready(None),
                    Rest::Failed(_) => {
                        let ended = Rest::Ended { missing: 0 };
                        Poll::Ready(match std::mem::replace(rest, ended) {
                            Rest::Failed(error) => Some(Err(error)),
                            Rest::Body(_) | Rest::Ended { .. } => None,
                        })
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Whole { data, trailers } => data.is_none() && trailers.is_none(),
            Kind::Resumed { data, rest } => {
                data.is_none()
                    && match rest {
                        Rest::Body(body) => body.is_end_stream(),
                        Rest::Failed(_) => false,
                        Rest::Ended { .. } => true,
                    }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            // With an exact hint hyper sends a Content-Length instead of chunks over HTTP/1, and trailers
            // have no place there.
            Kind::Whole { data, trailers } => match trailers {
                None => SizeHint::with_exact(len(data)),
                Some(_) => at_least(len(data)),
            },
            Kind::Resumed { data, rest } => {
                let rest = match rest {
                    Rest::Body(body) => body.size_hint(),
                    Rest::Failed(_) | Rest::Ended { missing: 0 } => SizeHint::default(),
                    // The promise stands, so that the host sees it broken.
                    Rest::Ended { missing } => SizeHint::with_exact(*missing),
                };
                let mut hint = at_least(rest.lower().saturating_add(len(data)));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(len(data)));
                }
                hint
            }
        }
    }
}

fn at_least(bytes: u64) -> SizeHint {
    let mut hint = SizeHint::new();
    hint.set_lower(bytes);
    hint
}

fn len(data: &Option<Bytes>) -> u64 {
    data.as_ref().map_or(0, |data| data.len() as u64)
}

impl<B: Body> fmt::Debug for FlightBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Inner { .. } => "FlightBody::Inner",
            Kind::Whole { .. } => "FlightBody::Whole",
            Kind::Resumed { .. } => "FlightBody::Resumed",
        })
    }
}
