//! Request bodies: whole, in pieces of unknown length, or one that stops half-way.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::shown::shown;

/// A request body.
#[derive(Debug, Clone, Default)]
pub(crate) enum Upload {
    /// None.
    #[default]
    Absent,
    /// Of known length.
    Whole(Bytes),
    /// Of unknown length: chunks over HTTP/1, no `Content-Length` over HTTP/2.
    Pieces(Vec<Bytes>),
    /// Says that it has twice these bytes, sends them once, and then nothing more.
    Half(Bytes),
}

impl Upload {
    /// In pieces of this many bytes.
    pub(crate) fn pieces(bytes: &[u8], each: usize) -> Self {
        Upload::Pieces(
            bytes
                .chunks(each.max(1))
                .map(Bytes::copy_from_slice)
                .collect(),
        )
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Upload::Absent => "no body".to_owned(),
            Upload::Whole(bytes) => body(bytes),
            Upload::Pieces(pieces) => {
                format!("{} in {} pieces", body(&pieces.concat()), pieces.len())
            }
            Upload::Half(bytes) => format!("half of a body: {}", body(bytes)),
        }
    }

    pub(crate) fn into_body(self) -> Sending {
        let (pieces, len, stalls) = match self {
            Upload::Absent => (vec![], Some(0), false),
            Upload::Whole(bytes) => {
                let len = bytes.len() as u64;
                (vec![bytes], Some(len), false)
            }
            Upload::Pieces(pieces) => (pieces, None, false),
            Upload::Half(bytes) => {
                let len = 2 * bytes.len() as u64;
                (vec![bytes], Some(len), true)
            }
        };
        Sending {
            pieces: pieces
                .into_iter()
                .filter(|piece| !piece.is_empty())
                .collect(),
            left: len,
            stalls,
        }
    }
}

fn body(bytes: &[u8]) -> String {
    match bytes.is_empty() {
        true => "an empty body".to_owned(),
        false => shown(bytes, 120),
    }
}

/// An upload under way.
#[derive(Debug)]
pub(crate) struct Sending {
    pieces: VecDeque<Bytes>,
    left: Option<u64>,
    stalls: bool,
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.pieces.pop_front() {
            Some(piece) => {
                if let Some(left) = &mut self.left {
                    *left = left.saturating_sub(piece.len() as u64);
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            // For ever: whoever sends it hangs up.
            None if self.stalls => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
