//! What was read of a response, up to the cap.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};

use crate::body::{Fed, Feed, ResponseBody, Whole};

/// What was read of a body, up to the cap.
pub(super) struct Tape {
    pub(super) chunks: VecDeque<Bytes>,
    pub(super) trailers: Option<HeaderMap>,
    room: usize,
}

impl Tape {
    pub(super) fn up_to(cap: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            trailers: None,
            room: cap,
        }
    }

    /// Keeps a copy of a frame (data is shared, not copied). An error when it does not fit.
    pub(super) fn keep(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Frame<Bytes>> {
        if let Some(data) = frame.data_ref() {
            match self.room.checked_sub(data.len()) {
                Some(room) => self.room = room,
                None => return Err(frame),
            }
            if !data.is_empty() {
                self.chunks.push_back(data.clone());
            }
        } else if let Some(trailers) = frame.trailers_ref() {
            self.trailers = Some(trailers.clone());
        }
        Ok(frame)
    }

    /// How much data was kept.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    pub(super) fn into_whole(self) -> Whole {
        Whole {
            chunks: self.chunks,
            trailers: self.trailers,
        }
    }

    /// The same, where more is to be kept.
    pub(super) fn to_fed<R: Body>(&self) -> (Feed<R>, ResponseBody<R>) {
        let (feed, fed) = ResponseBody::fed();
        for chunk in &self.chunks {
            let _ = feed.send(Fed::Frame(Frame::data(chunk.clone())));
        }
        (feed, fed)
    }

    /// A body that begins with what was read.
    pub(super) fn into_fed<R: Body>(self) -> (Feed<R>, ResponseBody<R>) {
        let (feed, fed) = ResponseBody::fed();
        for chunk in self.chunks {
            let _ = feed.send(Fed::Frame(Frame::data(chunk)));
        }
        (feed, fed)
    }
}
