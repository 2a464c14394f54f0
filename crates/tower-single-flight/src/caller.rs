//! What of the leader goes with its call into a task: the tracing span and its row on the stage board.

use tower_claim::Code;

/// Empty, and free, without the features `tracing` and `stage`.
#[derive(Clone)]
pub(crate) struct Caller {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
    #[cfg(feature = "stage")]
    stage: tower_stage::StageHandle,
}

impl Caller {
    /// That of the caller who is polled right now.
    pub(crate) fn current() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            span: tracing::Span::current(),
            #[cfg(feature = "stage")]
            stage: tower_stage::StageHandle::current(),
        }
    }

    pub(crate) fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _entered = self.span.enter();
        #[cfg(feature = "stage")]
        let f = || self.stage.enter(f);
        f()
    }

    /// The call panicked in a task, where no layer sees it.
    pub(crate) fn panicked(&self) {
        #[cfg(feature = "stage")]
        self.stage.panicked();
    }

    /// The caller is sent a refusal.
    pub(crate) fn refused(&self, code: Code) {
        #[cfg(feature = "stage")]
        match code {
            Code::FlightAged => self.stage.timed_out(),
            Code::WaitTimeout | Code::Overloaded | Code::ShuttingDown => self.stage.rejected(),
            _ => {}
        }
        let _ = code;
    }

    /// The caller who is polled right now waits for `leader`'s flight, until the guard is dropped.
    pub(crate) fn wait_for(&self, leader: &Caller, flight: u64) -> Waiting {
        #[cfg(feature = "stage")]
        let waiting = {
            use tower_stage::{Blocker, WaitReason};
            let blocker = match leader.stage.id() {
                Some(row) => Blocker::from(row),
                None => Blocker::from(flight),
            };
            Waiting(self.stage.wait_on(WaitReason::Flight, blocker))
        };
        #[cfg(not(feature = "stage"))]
        let waiting = {
            let _ = (self, leader, flight);
            Waiting()
        };
        waiting
    }
}

/// A follower's wait on the stage board.
pub(crate) struct Waiting(
    #[cfg(feature = "stage")]
    #[expect(dead_code, reason = "its drop clears the wait")]
    tower_stage::Waiting,
);

impl Waiting {
    /// The wait is over.
    pub(crate) fn end(self) {}
}
