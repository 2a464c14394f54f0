//! Collects a body that several wait for.

use std::future::poll_fn;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http_body::Body;
use tokio::task::coop::consume_budget;

use super::body::{FlightBody, Rest};

/// How far a body can be collected.
pub(super) struct Bounds {
    pub(super) most: usize,
    /// What `Content-Length` promises, or else the body's own hint.
    pub(super) promised: Option<u64>,
    pub(super) time_up: BoxFuture<'static, ()>,
}

pub(super) enum Gathered<B: Body> {
    Whole(Option<Bytes>, Option<HeaderMap>),
    /// Too much or too slow: this is the body, from its beginning.
    Unfit(FlightBody<B>),
    /// It broke off, or is not as long as promised: this is the body, from its beginning to its error.
    Broken(FlightBody<B>),
}

pub(super) async fn gather<B: Body<Data = Bytes>>(body: B, mut bounds: Bounds) -> Gathered<B> {
    let mut body = Box::pin(body);
    let mut data = Pile::default();
    let mut trailers: Option<HeaderMap> = None;
    loop {
        // Time first, and others' turn between frames: a body that is always ready, with frames of nothing,
        // would run here for ever.
        consume_budget().await;
        let next = poll_fn(|cx| match bounds.time_up.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => body.as_mut().poll_frame(cx).map(Some),
        });
        match next.await {
            None => return Gathered::Unfit(FlightBody::resumed(data.take(), Rest::Body(body))),
            Some(None) => break,
            Some(Some(Err(error))) => {
                let broken = FlightBody::resumed(data.take(), Rest::Failed(error));
                return Gathered::Broken(broken);
            }
            Some(Some(Ok(frame))) => match frame.into_data() {
                Ok(more) => {
                    data.put(more);
                    if data.len() > bounds.most {
                        let unfit = FlightBody::resumed(data.take(), Rest::Body(body));
                        return Gathered::Unfit(unfit);
                    }
                }
                Err(frame) => {
                    if let Ok(more) = frame.into_trailers() {
                        trailers.get_or_insert_default().extend(more);
                    }
                }
            },
        }
    }
    if let Some(promised) = bounds.promised
        && promised != data.len() as u64
    {
        // As the host would have seen it: its own check of the length still speaks.
        let missing = promised.saturating_sub(data.len() as u64);
        let broken = FlightBody::resumed(data.take(), Rest::Ended { missing });
        return Gathered::Broken(broken);
    }
    Gathered::Whole(data.take(), trailers)
}

/// Data frames. A single frame is kept as it is; more are put together, so that a body of one-byte frames
/// holds no more memory than its bytes.
#[derive(Default)]
struct Pile {
    first: Option<Bytes>,
    more: BytesMut,
}

impl Pile {
    fn len(&self) -> usize {
        self.first.as_ref().map_or(0, Bytes::len) + self.more.len()
    }

    fn put(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = Some(data);
            return;
        }
        if let Some(first) = self.first.take() {
            self.more.extend_from_slice(&first);
        }
        self.more.extend_from_slice(&data);
    }

    fn take(&mut self) -> Option<Bytes> {
        let first = self.first.take();
        first.or_else(|| {
            let more = std::mem::take(&mut self.more).freeze();
            (!more.is_empty()).then_some(more)
        })
    }
}
