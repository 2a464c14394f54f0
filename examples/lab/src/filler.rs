//! Response bodies in frames of equal size, with pauses, that may fail on the way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

/// What is in a body.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// These bytes.
    Bytes(Bytes),
    /// So many bytes of filler.
    Filler(u64),
}

impl Content {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Filler(len) => *len,
        }
    }

    /// The next `len` bytes; `len` is not more than there are.
    fn take(&mut self, len: u64) -> Bytes {
        const PAGE: &[u8] = &[b'x'; 64 * 1024];
        match self {
            Content::Bytes(bytes) => bytes.split_to(usize::try_from(len).unwrap_or(bytes.len())),
            Content::Filler(left) => {
                *left -= len;
                match usize::try_from(len) {
                    Ok(len) if len <= PAGE.len() => Bytes::from_static(&PAGE[..len]),
                    Ok(len) => Bytes::from(vec![b'x'; len]),
                    Err(_) => Bytes::new(),
                }
            }
        }
    }
}

/// The body. Without `chunks` it is one frame, or pages of 64 KiB where it is larger.
pub(crate) struct Filler {
    content: Content,
    frame: u64,
    frames_left: u64,
    frames_sent: u64,
    pause: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    fail_after: Option<u64>,
    flushed: bool,
    known_len: bool,
}

impl Filler {
    pub(crate) fn new(content: Content, chunks: Option<u64>, pause: Duration) -> Self {
        const PAGE: u64 = 64 * 1024;
        let len = content.len();
        let (frame, frames_left) = match chunks {
            Some(chunks) => (len / chunks, chunks),
            None => (PAGE, len.div_ceil(PAGE)),
        };
        Self {
            content,
            frame,
            frames_left,
            frames_sent: 0,
            pause,
            sleep: None,
            fail_after: None,
            flushed: false,
            known_len: true,
        }
    }

    /// Fails after this many frames.
    pub(crate) fn failing(mut self, after: Option<u64>) -> Self {
        self.fail_after = after;
        self
    }

    /// Does not tell its length.
    pub(crate) fn without_len(mut self) -> Self {
        self.known_len = false;
        self
    }
}

impl Body for Filler {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if this.fail_after == Some(this.frames_sent) {
            // A server that meets the error in the same poll as the frames before it sends neither.
            if !std::mem::replace(&mut this.flushed, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            this.frames_left = 0;
            this.fail_after = None;
            return Poll::Ready(Some(Err(std::io::Error::other(
                "the body fails on command",
            ))));
        }
        if this.frames_left == 0 {
            return Poll::Ready(None);
        }
        if this.frames_sent > 0 && !this.pause.is_zero() {
            let pause = this.pause;
            let sleep = this
                .sleep
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
            ready!(sleep.as_mut().poll(cx));
            this.sleep = None;
        }
        this.frames_left -= 1;
        this.frames_sent += 1;
        let left = this.content.len();
        let len = if this.frames_left == 0 {
            left
        } else {
            this.frame.min(left)
        };
        Poll::Ready(Some(Ok(Frame::data(this.content.take(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.known_len && self.frames_left == 0 && self.fail_after != Some(self.frames_sent)
    }

    fn size_hint(&self) -> SizeHint {
        if self.known_len {
            SizeHint::with_exact(self.content.len())
        } else {
            SizeHint::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn frames(body: Filler) -> (Vec<usize>, bool) {
        let mut body = std::pin::pin!(body);
        let mut sizes = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => sizes.push(frame.into_data().unwrap().len()),
                Err(_) => return (sizes, false),
            }
        }
        (sizes, true)
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_equal_and_the_last_takes_the_rest() {
        let body = Filler::new(Content::Filler(10), Some(3), Duration::from_millis(5));
        assert_eq!(frames(body).await, (vec![3, 3, 4], true));
        let body = Filler::new(Content::Filler(100_000), None, Duration::ZERO);
        assert_eq!(frames(body).await, (vec![65_536, 34_464], true));
        let body = Filler::new(Content::Bytes(Bytes::new()), None, Duration::ZERO);
        assert_eq!(frames(body).await, (vec![], true));
    }

    #[tokio::test]
    async fn it_fails_after_so_many_frames() {
        for after in 0..=3 {
            let body =
                Filler::new(Content::Filler(9), Some(3), Duration::ZERO).failing(Some(after));
            assert_eq!(frames(body).await, (vec![3; after as usize], false));
        }
    }
}
