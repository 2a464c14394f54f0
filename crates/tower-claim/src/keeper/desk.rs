//! What the keeper has to do: which hold to beat when, and what to clean up. Shared by the claims, who
//! put things on it, and the worker, who takes them off.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::cleanup::Job;
use super::hold::Hold;
use crate::{Clock, Moment};

/// After every instant.
const NEVER: Moment = Moment::since_start(Duration::MAX);

pub(super) struct Desk {
    pub(super) clock: Arc<dyn Clock>,
    papers: Mutex<Papers>,
    /// Wakes the worker.
    wake: Notify,
    /// Rung when the last job is over.
    idle: Notify,
    /// Whether a worker runs.
    pub(super) staffed: AtomicBool,
}

struct Papers {
    /// By due time; the address tells apart holds that are due together.
    holds: BTreeMap<(Moment, usize), Arc<Hold>>,
    jobs: Vec<Job>,
    /// Jobs on the desk or under way.
    pending: usize,
    /// The worker sleeps until then: an earlier beat must wake it, a later one must not.
    asleep_until: Moment,
    closed: bool,
}

/// One worker's round.
pub(super) struct Round {
    pub(super) holds: Vec<Arc<Hold>>,
    pub(super) jobs: Vec<(Job, Pending)>,
    pub(super) next: Option<Moment>,
    pub(super) closed: bool,
}

/// Counts a job until it is over, also when it panics or its runtime shuts down.
pub(super) struct Pending(Arc<Desk>);

impl Drop for Pending {
    fn drop(&mut self) {
        let mut papers = self.0.lock();
        papers.pending = papers.pending.saturating_sub(1);
        if papers.pending == 0 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Desk {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            papers: Mutex::new(Papers {
                holds: BTreeMap::new(),
                jobs: Vec::new(),
                pending: 0,
                asleep_until: NEVER,
                closed: false,
            }),
            wake: Notify::new(),
            idle: Notify::new(),
            staffed: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Papers> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a hold on the desk: it is beaten at `due`.
    pub(super) fn schedule(&self, hold: &Arc<Hold>, due: Moment) {
        hold.lock().due = Some(due);
        let wake = {
            let mut papers = self.lock();
            papers
                .holds
                .insert((due, Arc::as_ptr(hold).addr()), Arc::clone(hold));
            let wake = due < papers.asleep_until;
            if wake {
                papers.asleep_until = due;
            }
            wake
        };
        if wake {
            self.wake.notify_one();
        }
    }

    /// Takes a hold off the desk. One that the worker has in hand is not found; it sees the hold's phase.
    pub(super) fn unschedule(&self, hold: &Arc<Hold>) {
        let Some(due) = hold.lock().due.take() else {
            return;
        };
        let gone = self.lock().holds.remove(&(due, Arc::as_ptr(hold).addr()));
        drop(gone);
    }

    /// Leaves a job. Never blocks, never fails: for `Drop`.
    pub(super) fn leave(&self, job: Job) {
        {
            let mut papers = self.lock();
            papers.jobs.push(job);
            papers.pending += 1;
        }
        self.wake.notify_one();
    }

    /// Nobody can claim any more: the worker finishes what is left, and ends.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// What is to be done now. Holds due soon come along, so that they share a trip.
    pub(super) fn take(self: &Arc<Self>, now: Moment) -> Round {
        let mut papers = self.lock();
        let jobs = std::mem::take(&mut papers.jobs);
        let mut holds = Vec::new();
        let mut until = now;
        while let Some(entry) = papers.holds.first_entry() {
            if entry.key().0 > until {
                break;
            }
            let hold = entry.remove();
            if holds.is_empty() {
                until = now + hold.timing.lease / 30;
            }
            holds.push(hold);
        }
        let next = papers.holds.keys().next().map(|key| key.0);
        papers.asleep_until = next.unwrap_or(NEVER);
        Round {
            holds,
            jobs: jobs
                .into_iter()
                .map(|job| (job, Pending(Arc::clone(self))))
                .collect(),
            next,
            closed: papers.closed,
        }
    }

    /// Ready when something new came, or the next due time did.
    pub(super) async fn something_to_do(&self, next: Option<Moment>) {
        match next {
            Some(next) => {
                let _ = crate::wait::within(&*self.clock, next, self.wake.notified()).await;
            }
            None => self.wake.notified().await,
        }
    }

    /// Ready when no job is left.
    pub(super) async fn idle(&self) {
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            if self.lock().pending == 0 {
                return;
            }
            idle.await;
        }
    }

    pub(super) fn is_staffed(&self) -> bool {
        self.staffed.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let papers = self.lock();
        f.debug_struct("Desk")
            .field("holds", &papers.holds.len())
            .field("jobs", &papers.pending)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::super::tests::a_hold;
    use super::*;
    use crate::testing::ManualClock;

    const SECOND: Duration = Duration::from_secs(1);

    /// Whether the worker, asleep until the next due time, is woken.
    fn wakes(desk: &Desk) -> bool {
        desk.wake.notified().now_or_never().is_some()
    }

    #[test]
    fn only_a_beat_that_is_due_earlier_wakes_the_worker() {
        let clock = ManualClock::new();
        let desk = Arc::new(Desk::new(Arc::new(clock.clone())));
        let now = clock.now();
        let holds = [a_hold(), a_hold(), a_hold(), a_hold()];
        desk.schedule(&holds[0], now + SECOND * 3);
        assert!(wakes(&desk), "it slept without end");
        desk.schedule(&holds[1], now + SECOND * 4);
        assert!(!wakes(&desk), "it looks sooner than that");
        desk.schedule(&holds[2], now + SECOND * 2);
        assert!(wakes(&desk), "it would have slept through it");

        // Gone before they were due: the worker sleeps on, and a later one need not wake it.
        for hold in &holds {
            desk.unschedule(hold);
        }
        desk.schedule(&holds[3], now + SECOND * 3);
        assert!(!wakes(&desk));
        let round = desk.take(now + SECOND * 2);
        assert!(round.holds.is_empty());
        assert_eq!(round.next, Some(now + SECOND * 3));
        assert_eq!(desk.take(now + SECOND * 3).holds.len(), 1);
    }
}
