//! The guard of a row: owned by the response future, then by the body, it ends the row exactly once.

use std::mem;

use http::{Method, Response, StatusCode};
use http_body::{Body, Frame};
use tower_claim::http::{End, ResponseEnd};

use crate::board::Sent;
use crate::grpc::{self, GrpcStatus};
use crate::{Cause, Stage, StageHandle, current};

/// Dropped before the row has ended, it ends the row by what it knows: a poll that did not come back was a
/// panic; without a head the request was cancelled, after it the client is gone.
#[derive(Debug)]
pub(crate) struct Tracked {
    handle: StageHandle,
    open: bool,
    method: Method,
    head: Option<Head>,
}

#[derive(Debug)]
struct Head {
    end: ResponseEnd,
    status: StatusCode,
    grpc: GrpcStatus,
}

impl Tracked {
    pub(crate) fn new(handle: StageHandle, method: Method) -> Self {
        Self {
            handle,
            open: true,
            method,
            head: None,
        }
    }

    pub(crate) fn mark(&self, stage: Stage) {
        self.handle.mark(stage);
    }

    /// Runs the inner service, its future or its body, with this row as the current one.
    #[inline(always)]
    pub(crate) fn poll<T>(&mut self, f: impl FnOnce() -> T) -> T {
        self.turn();
        let polled = current::enter(&mut self.handle, f);
        // Not reached by a panic: the drop that follows finds the poll unfinished.
        self.turn();
        polled
    }

    /// The inner service answered an error.
    pub(crate) fn failed(&mut self) {
        self.close(Cause::Failed);
    }

    /// The head is there.
    pub(crate) fn head<B: Body>(&mut self, response: &Response<B>) {
        let (status, headers) = (response.status(), response.headers());
        let head = self.head.insert(Head {
            end: ResponseEnd::new(&self.method, status, headers)
                .announcing(response.body().size_hint().exact()),
            status,
            grpc: GrpcStatus::of_head(headers),
        });
        match head.over(response.body().is_end_stream()) {
            Some(cause) => self.close(cause),
            None => self.mark(Stage::Streaming),
        }
    }

    /// What the body answered, and what it says of its end now.
    pub(crate) fn frame<D: bytes::Buf, E>(
        &mut self,
        frame: Option<&Result<Frame<D>, E>>,
        is_end_stream: bool,
    ) {
        let Some(head) = &mut self.head else { return };
        match frame {
            Some(Ok(frame)) => {
                head.end.frame(frame);
                if let Some(trailers) = frame.trailers_ref() {
                    head.grpc.trailers(trailers);
                }
            }
            Some(Err(_)) => head.end.error(),
            None => head.end.none(),
        }
        let last = frame.is_none() || is_end_stream;
        if let Some(cause) = head.over(last) {
            self.close(cause);
        }
    }

    /// Whether a row is still to be ended.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// The body is dropped. `is_end_stream` is asked only of a body that has not panicked.
    pub(crate) fn dropped(&mut self, is_end_stream: impl FnOnce() -> bool) {
        if !self.is_open() {
            return;
        }
        let cause = if self.in_poll() {
            Cause::Panicked
        } else if let Some(head) = &self.head {
            head.cause(head.end.dropped(is_end_stream()))
        } else {
            Cause::Cancelled
        };
        self.close(cause);
    }

    fn close(&mut self, cause: Cause) {
        if !mem::replace(&mut self.open, false) {
            return;
        }
        let sent = self.head.as_ref().map(|head| Sent {
            status: Some(head.status),
            bytes: head.end.bytes(),
            grpc_status: head.grpc.code(),
        });
        if let Some(row) = self.handle.row() {
            row.close(cause, sent.unwrap_or_default());
        }
    }

    fn turn(&self) {
        if let Some(row) = self.handle.row() {
            row.slot().turn();
        }
    }

    fn in_poll(&self) -> bool {
        self.handle.row().is_some_and(|row| row.slot().in_poll())
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.dropped(|| false);
    }
}

impl Head {
    /// The end, if it has come. A gRPC status may follow the announced bytes, so those alone end nothing
    /// there.
    fn over(&self, last: bool) -> Option<Cause> {
        let end = self.end.over(last)?;
        let awaits_trailers =
            end == End::Whole && self.grpc.is_awaited() && !self.end.saw_trailers() && !last;
        (!awaits_trailers).then(|| self.cause(end))
    }

    fn cause(&self, end: End) -> Cause {
        let failed =
            self.status.is_server_error() || self.grpc.code().is_some_and(grpc::is_server_fault);
        match end {
            End::Whole if failed => Cause::Failed,
            End::Whole => Cause::Done,
            End::Upgraded => Cause::Upgraded,
            End::Cut => Cause::ClientGone,
            // `Failed`, `Short`, and whatever else is not well.
            _ => Cause::Failed,
        }
    }
}
