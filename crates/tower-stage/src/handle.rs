//! The handle of one request's row.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;

use http::Extensions;

use crate::current;
use crate::row::Row;
use crate::{Blocker, Cause, Stage, WaitReason, Waiting};

/// One request's row on the board, for who works on it. Cheap to clone; valid on any thread.
///
/// A `StageLayer` puts it into the request's extensions, where it survives a spawn, and makes it the
/// *current* one of the thread while it polls, so that deep code reaches it without plumbing
/// ([`mark`](crate::mark)). Without such a layer above, a handle is inert: everything on it does nothing.
///
/// After its request has ended a handle changes nothing more, also when the row serves another request by
/// then; such marks are counted (`late_marks`).
#[derive(Clone, Default)]
pub struct StageHandle {
    row: Option<Row>,
}

impl StageHandle {
    /// A handle of nothing.
    pub const fn inert() -> Self {
        Self { row: None }
    }

    /// The handle of the request that this thread polls right now; inert if there is none.
    pub fn current() -> Self {
        current::with(StageHandle::clone).unwrap_or_default()
    }

    /// The handle in these extensions, else the [current](Self::current) one.
    pub fn of(extensions: &Extensions) -> Self {
        match extensions.get::<StageHandle>() {
            Some(handle) => handle.clone(),
            None => Self::current(),
        }
    }

    /// Whether it never had a row.
    pub fn is_inert(&self) -> bool {
        self.row.is_none()
    }

    /// Whether its request is still on a board.
    pub fn is_live(&self) -> bool {
        self.row.as_ref().is_some_and(Row::is_live)
    }

    /// The row's id as the board shows it; `None` when inert. Good as the [`Blocker`] of others.
    pub fn id(&self) -> Option<String> {
        self.row.as_ref().map(Row::id)
    }

    /// The request is in this stage from now on.
    pub fn mark(&self, stage: Stage) {
        if let Some(row) = &self.row {
            row.mark(stage);
        }
    }

    /// The request waits, until the guard is dropped.
    pub fn wait_on(&self, reason: WaitReason, blocker: impl Into<Blocker>) -> Waiting {
        Waiting::begin(self, reason, blocker.into())
    }

    /// A layer answers instead of the inner service: the row will end `rejected`, whatever the status.
    pub fn rejected(&self) {
        self.ends_as(Cause::Rejected);
    }

    /// The work took too long and was given up: the row will end `timed_out`.
    pub fn timed_out(&self) {
        self.ends_as(Cause::TimedOut);
    }

    /// The work panicked somewhere else, such as in a task of its own: the row will end `panicked`, also
    /// when the caller is sent a response.
    pub fn panicked(&self) {
        self.ends_as(Cause::Panicked);
    }

    /// Says why this request will end, where the layer could not know. The first word counts.
    pub fn ends_as(&self, cause: Cause) {
        if let Some(row) = &self.row {
            row.ends_as(cause);
        }
    }

    /// Makes this handle the current one while `future` is polled: for spawned tasks, whose thread knows
    /// nothing of the request.
    ///
    /// A panic passes through. Dropping the future drops what is inside.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        let mut handle = self;
        async move {
            let mut future = pin!(future);
            poll_fn(|cx| current::enter(&mut handle, || future.as_mut().poll(cx))).await
        }
    }

    /// Makes this handle the current one while `f` runs.
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        current::enter(&mut self.clone(), f)
    }

    pub(crate) fn row(&self) -> Option<&Row> {
        self.row.as_ref()
    }
}

#[cfg(feature = "layer")]
impl StageHandle {
    pub(crate) fn to(row: Row) -> Self {
        Self { row: Some(row) }
    }
}

impl fmt::Debug for StageHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StageHandle").field(&self.id()).finish()
    }
}

/// The request that this thread polls is in `stage` from now on. Without a `StageLayer` above: one failed
/// look-up.
pub fn mark(stage: Stage) {
    current::with(|handle| handle.mark(stage));
}

/// The request that this thread polls waits, until the guard is dropped. Without a `StageLayer` above the
/// guard guards nothing.
pub fn wait_on(reason: WaitReason, blocker: impl Into<Blocker>) -> Waiting {
    StageHandle::current().wait_on(reason, blocker)
}
