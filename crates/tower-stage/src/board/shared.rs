//! What a row needs to begin, to be marked and to end: all of a board that does not hold rows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use tower_claim::Clock;

use super::free::FreeList;
use super::recent::{Finished, Recent, Sent};
use super::slot::Slot;
use crate::Cause;

/// What all slots of one table share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) late_marks: AtomicU64,
    pub(crate) free: FreeList,
    pub(crate) recent: Recent,
    pub(crate) on_finish: Option<OnFinish>,
    pub(crate) shutting_down: AtomicBool,
}

/// Told of every request that ended.
#[derive(Clone)]
pub(crate) struct OnFinish(pub(crate) Arc<dyn Fn(&Finished) + Send + Sync>);

impl fmt::Debug for OnFinish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFinish")
    }
}

impl Shared {
    pub(crate) fn new(clock: Arc<dyn Clock>, recent: usize, on_finish: Option<OnFinish>) -> Self {
        Self {
            clock,
            late_marks: AtomicU64::new(0),
            free: FreeList::default(),
            recent: Recent::new(recent),
            on_finish,
            shutting_down: AtomicBool::new(false),
        }
    }

    /// Nanoseconds since the clock's start.
    pub(crate) fn now(&self) -> u64 {
        let elapsed = self.clock.now().elapsed();
        elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
    }

    /// Ends the row of this generation, if it has not ended, and gives its slot free. What a sibling said of
    /// its end comes before what the layer saw.
    pub(crate) fn close(&self, slot: &Slot, generation: u32, seen: Cause, sent: Sent) {
        let Some(closed) = slot.close(generation) else {
            return;
        };
        let seen = match seen {
            Cause::Cancelled | Cause::ClientGone if self.shutting_down.load(Relaxed) => {
                Cause::Shutdown
            }
            seen => seen,
        };
        let cause = closed.verdict.unwrap_or(seen);
        let write = |row: &mut Finished| row.write(slot.id(generation), slot, closed, cause, sent);
        match &self.on_finish {
            None => {
                self.recent.push(write);
                self.free.give(slot);
            }
            Some(OnFinish(sink)) => {
                let mut row = Finished::blank();
                write(&mut row);
                self.free.give(slot);
                sink(&row);
                self.recent.push(|place| *place = row);
            }
        }
    }
}
