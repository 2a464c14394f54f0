//! How many flights are tasks of their own, and the end of that at a shutdown.
//!
//! Not [`tower_claim::Detached`]: that spawns on the runtime it is called on, and drops what it refuses.
//! Here a joiner's runtime may wait for the leader's poll to return, and a refused call would take all who
//! wait for it along: the place is asked for before anybody joins.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tower_claim::Clock;

/// Counts the tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    running: AtomicUsize,
    closed: AtomicBool,
    idle: Notify,
}

/// A counted place for one task, and the runtime to spawn it on.
pub(crate) struct Berth {
    pub(crate) runtime: Handle,
    pub(crate) counted: Counted,
}

/// One task that runs, or will.
pub(crate) struct Counted(Arc<Tasks>);

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Tasks {
    /// None after a drain began, or outside of a runtime.
    pub(crate) fn berth(self: &Arc<Self>) -> Option<Berth> {
        let runtime = Handle::try_current().ok()?;
        // Counted first: a drain that closes right after waits for this one, or this sees the close.
        self.running.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(Arc::clone(self));
        (!self.is_closed()).then_some(Berth { runtime, counted })
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) async fn drain(&self, clock: &dyn Clock, timeout: Duration) -> bool {
        self.closed.store(true, Ordering::SeqCst);
        let all_gone = async {
            loop {
                let mut idle = pin!(self.idle.notified());
                // Registered before the count is read, or a task that ends in between is missed.
                idle.as_mut().enable();
                if self.running() == 0 {
                    return;
                }
                idle.await;
            }
        };
        let time_up = clock.sleep_until(clock.now() + timeout);
        matches!(select(pin!(all_gone), time_up).await, Either::Left(_))
    }
}

#[cfg(test)]
mod tests {
    use tower_claim::TokioClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drain_gives_no_further_place_and_waits_for_each_that_was_given() {
        const SECOND: Duration = Duration::from_secs(1);
        let (tasks, clock) = (Arc::<Tasks>::default(), TokioClock::new());
        let berth = tasks.berth();
        assert_eq!((berth.is_some(), tasks.running()), (true, 1));
        assert!(!tasks.drain(&clock, SECOND).await);
        assert!(tasks.berth().is_none());
        assert_eq!(tasks.running(), 1, "what was refused is not counted");
        drop(berth);
        assert!(tasks.drain(&clock, SECOND).await);
    }
}
