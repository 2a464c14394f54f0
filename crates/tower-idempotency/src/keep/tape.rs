//! What was read of a response, up to the cap.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};

use crate::body::{Fed, Feed, ResponseBody, Whole};

/// What a frame takes beside its data, here and on its way to a caller who does not read.
const FRAME_BYTES: usize = 128;
/// Frames may take so many times the cap, and so much at least.
const FRAMES_TO_CAP: usize = 8;
const LEAST_FOR_FRAMES: usize = 1 << 20;

/// What was read of a body, up to the cap.
pub(super) struct Tape {
    pub(super) chunks: VecDeque<Bytes>,
    pub(super) trailers: Option<HeaderMap>,
    room: usize,
    /// A mebibyte that comes byte by byte is more than a hundred of them in memory.
    room_for_frames: usize,
}

impl Tape {
    pub(super) fn up_to(cap: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            trailers: None,
            room: cap,
            room_for_frames: cap.saturating_mul(FRAMES_TO_CAP).max(LEAST_FOR_FRAMES),
        }
    }

    /// Keeps a copy of a frame (data is shared, not copied). An error when it does not fit.
    pub(super) fn keep(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Frame<Bytes>> {
        if is_empty(&frame) {
            return Ok(frame);
        }
        if let Some(data) = frame.data_ref() {
            let room = self.room.checked_sub(data.len());
            let room_for_frames = self.room_for_frames.checked_sub(FRAME_BYTES);
            let (Some(room), Some(room_for_frames)) = (room, room_for_frames) else {
                return Err(frame);
            };
            (self.room, self.room_for_frames) = (room, room_for_frames);
            self.chunks.push_back(data.clone());
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

/// Whether a frame says nothing. However many of them come, none is kept, nor passed on.
pub(super) fn is_empty(frame: &Frame<Bytes>) -> bool {
    frame.data_ref().is_some_and(Bytes::is_empty)
}
