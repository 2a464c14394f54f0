//! A body whose end waits for its record.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::sync::oneshot;

use super::response::{BoxError, CutOff};

/// A body that is not kept, and tells only by its end what it is worth. Its caller reads it at its own speed; the end
/// is held back until the record stands. One that hangs up gives it back: it is read to its end all the same.
pub(crate) struct Held<R: Body> {
    /// Until its end.
    body: Option<Pin<Box<R>>>,
    on_frame: Box<dyn Fn() + Send + Sync>,
    ended: Option<oneshot::Sender<Ended<R>>>,
    stands: oneshot::Receiver<bool>,
    last: Option<Result<Frame<Bytes>, R::Error>>,
}

/// What became of a held body.
pub(crate) enum Ended<R> {
    /// It came to its end, with these trailers.
    Whole(Option<HeaderMap>),
    Broken,
    /// Its caller reads no further.
    Left(Pin<Box<R>>),
}

/// The other side: hears of the end, and says whether it stands.
pub(crate) struct Holder<R> {
    pub(crate) ended: oneshot::Receiver<Ended<R>>,
    pub(crate) stands: oneshot::Sender<bool>,
}

impl<R: Body> Held<R> {
    pub(crate) fn new(
        body: Pin<Box<R>>,
        on_frame: impl Fn() + Send + Sync + 'static,
    ) -> (Self, Holder<R>) {
        let (tell_end, ended) = oneshot::channel();
        let (tell_whether, stands) = oneshot::channel();
        let held = Self {
            body: Some(body),
            on_frame: Box::new(on_frame),
            ended: Some(tell_end),
            stands,
            last: None,
        };
        let holder = Holder {
            ended,
            stands: tell_whether,
        };
        (held, holder)
    }

    /// Whether what was read last was its end.
    pub(super) fn is_over(&self) -> bool {
        self.body.is_none()
    }
}

impl<R> Held<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(body) = &mut self.body {
            let last = match ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) if !frame.is_trailers() => {
                    (self.on_frame)();
                    return Poll::Ready(Some(Ok(frame)));
                }
                last => last,
            };
            let end = match &last {
                Some(Ok(frame)) => Ended::Whole(frame.trailers_ref().cloned()),
                Some(Err(_)) => Ended::Broken,
                None => Ended::Whole(None),
            };
            self.body = None;
            self.last = last;
            if let Some(ended) = self.ended.take() {
                let _ = ended.send(end);
            }
        }
        let stands = ready!(Pin::new(&mut self.stands).poll(cx));
        Poll::Ready(match self.last.take() {
            // Broken off all the same, whatever became of the claim.
            Some(Err(error)) => Some(Err(error.into())),
            last if stands == Ok(true) => last.map(|frame| frame.map_err(Into::into)),
            _ => Some(Err(CutOff.into())),
        })
    }
}

impl<R: Body> Drop for Held<R> {
    fn drop(&mut self) {
        if let (Some(body), Some(ended)) = (self.body.take(), self.ended.take()) {
            let _ = ended.send(Ended::Left(body));
        }
    }
}
