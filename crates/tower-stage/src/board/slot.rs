//! One row of the table. What a mark changes is written under the slot's [word]; what changes seldom is
//! behind a lock that no mark takes.

mod id;
mod word;

use std::array;
use std::fmt;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::route::Route;
use super::shared::Shared;
use super::times::{StageTimes, bits};
use crate::stage::STAGES;
use crate::{Blocker, Cause, Stage, WaitReason};
pub use id::RowId;
use word::Word;

pub(crate) struct Slot {
    word: Word,
    started: AtomicU64,
    entered: AtomicU64,
    stage: AtomicU8,
    /// One more than the index of a [`Cause`]; 0 while nobody has said how it ends.
    verdict: AtomicU8,
    /// Odd while the request is polled. The one who polls is its only writer.
    polls: AtomicU32,
    /// A bit for every stage that was entered: only those are cleared for the next request.
    touched: AtomicU32,
    spent: [AtomicU64; STAGES],
    index: u32,
    /// One more than the index of the free slot below this one in its stack. The free list's alone.
    pub(super) below: AtomicU32,
    shared: Arc<Shared>,
    /// What changes seldom. Never taken by a mark.
    cold: Mutex<Cold>,
}

#[derive(Default)]
struct Cold {
    generation: u32,
    method: &'static str,
    route: Route,
    waits: Vec<(u32, WaitReason, Blocker)>,
    next_wait: u32,
}

/// A row at one instant.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) id: RowId,
    pub(crate) method: &'static str,
    pub(crate) route: Route,
    pub(crate) stage: Stage,
    pub(crate) started: u64,
    pub(crate) entered: u64,
    pub(crate) spent: StageTimes,
    pub(crate) wait: Option<(WaitReason, Blocker)>,
    pub(crate) polls: u32,
}

/// What is left of a row when its request has ended, beside its times.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) method: &'static str,
    pub(crate) route: Route,
    pub(crate) stage: Stage,
    pub(crate) total: u64,
    pub(crate) verdict: Option<Cause>,
}

impl Slot {
    pub(crate) fn new(index: u32, shared: Arc<Shared>) -> Self {
        Self {
            word: Word::default(),
            started: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            stage: AtomicU8::new(0),
            verdict: AtomicU8::new(0),
            polls: AtomicU32::new(0),
            touched: AtomicU32::new(0),
            spent: array::from_fn(|_| AtomicU64::new(0)),
            index,
            below: AtomicU32::new(0),
            shared,
            cold: Mutex::new(Cold::default()),
        }
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn id(&self, generation: u32) -> RowId {
        RowId::new(self.index, generation)
    }

    pub(crate) fn is_live(&self, generation: u32) -> bool {
        self.word.generation() == generation
    }

    /// Begins a row. Only for who took the slot from the free list; answers the row's generation.
    pub(crate) fn open(&self, method: &'static str, route: Route) -> u32 {
        self.word.begin(|generation| {
            {
                let mut cold = self.cold();
                cold.generation = generation;
                cold.method = method;
                cold.route = route;
            }
            let now = self.shared.now();
            self.started.store(now, Relaxed);
            self.entered.store(now, Relaxed);
            self.stage.store(index_of(Stage::Received), Relaxed);
            self.verdict.store(0, Relaxed);
            self.polls.store(0, Relaxed);
            for index in bits(self.touched.load(Relaxed)) {
                self.spent[index].store(0, Relaxed);
            }
            self.touched.store(1, Relaxed);
        })
    }

    pub(crate) fn mark(&self, generation: u32, stage: Stage) {
        let now = self.shared.now();
        match self.word.lock(generation) {
            Some(_locked) => self.enter(stage, now),
            None => self.late(),
        }
    }

    pub(crate) fn ends_as(&self, generation: u32, cause: Cause) {
        match self.word.lock(generation) {
            Some(_locked) if self.verdict.load(Relaxed) == 0 => {
                let index = Cause::ALL.iter().position(|c| *c == cause);
                let index = index.and_then(|i| u8::try_from(i + 1).ok());
                self.verdict.store(index.unwrap_or(0), Relaxed);
            }
            Some(_locked) => {}
            None => self.late(),
        }
    }

    pub(crate) fn begin_wait(
        &self,
        generation: u32,
        reason: WaitReason,
        blocker: Blocker,
    ) -> Option<u32> {
        let mut cold = self.cold();
        if cold.generation != generation {
            drop(cold);
            self.late();
            return None;
        }
        let wait = cold.next_wait;
        cold.next_wait = wait.wrapping_add(1);
        cold.waits.push((wait, reason, blocker));
        Some(wait)
    }

    /// Not late when the row is gone: its waits went with it.
    pub(crate) fn end_wait(&self, generation: u32, wait: u32) {
        let mut cold = self.cold();
        if cold.generation == generation {
            cold.waits.retain(|(known, ..)| *known != wait);
        }
    }

    /// Ends the row; `None` if it is not this generation's. Its times stay until the slot is given back: to
    /// be [read](Self::spent) where they are wanted.
    pub(crate) fn close(&self, generation: u32) -> Option<Closed> {
        let now = self.shared.now();
        let locked = self.word.lock(generation)?;
        let stage = self.stage();
        self.enter(stage, now);
        let free = locked.end();

        let mut cold = self.cold();
        cold.generation = free;
        cold.waits.clear();
        Some(Closed {
            method: cold.method,
            route: mem::take(&mut cold.route),
            stage,
            total: self.entered.load(Relaxed) - self.started.load(Relaxed),
            verdict: usize::from(self.verdict.load(Relaxed))
                .checked_sub(1)
                .and_then(|index| Cause::ALL.get(index).copied()),
        })
    }

    /// The row as it is now; `None` if no request has the slot. Blocks no mark.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let (generation, stage, started, entered, spent, polls) = self.word.read(|generation| {
            (
                generation,
                self.stage(),
                self.started.load(Relaxed),
                self.entered.load(Relaxed),
                self.times(),
                self.polls.load(Relaxed),
            )
        })?;
        let cold = self.cold();
        if cold.generation != generation {
            return None;
        }
        Some(Snapshot {
            id: self.id(generation),
            method: cold.method,
            route: cold.route.clone(),
            stage,
            started,
            entered,
            spent,
            wait: cold
                .waits
                .last()
                .map(|(_, reason, blocker)| (*reason, blocker.clone())),
            polls,
        })
    }

    /// The one who polls says so. Two of these make one poll.
    pub(crate) fn turn(&self) {
        let polls = self.polls.load(Relaxed);
        self.polls.store(polls.wrapping_add(1), Relaxed);
    }

    /// Whether a poll began and did not come back: at drop time, a panic.
    pub(crate) fn in_poll(&self) -> bool {
        self.polls.load(Relaxed) % 2 == 1
    }

    /// Adds the time since the last entry to the stage that is left, to the nanosecond, so that the stages
    /// sum up to the total. Two marks may arrive in another order than their times: none goes back.
    fn enter(&self, stage: Stage, now: u64) {
        let entered = self.entered.load(Relaxed);
        let now = now.max(entered);
        let left = &self.spent[usize::from(self.stage.load(Relaxed)) % STAGES];
        left.store(left.load(Relaxed) + (now - entered), Relaxed);
        self.entered.store(now, Relaxed);
        let index = index_of(stage);
        self.stage.store(index, Relaxed);
        self.touched
            .store(self.touched.load(Relaxed) | (1 << index), Relaxed);
    }

    fn stage(&self) -> Stage {
        Stage::of_index(usize::from(self.stage.load(Relaxed)))
    }

    fn times(&self) -> StageTimes {
        let mut times = StageTimes::default();
        self.spent(&mut times);
        times
    }

    /// Reads the times in each stage into the place where they are wanted.
    pub(crate) fn spent(&self, times: &mut StageTimes) {
        times.set(self.touched.load(Relaxed), |index| {
            self.spent[index].load(Relaxed)
        });
    }

    fn late(&self) {
        self.shared.late_marks.fetch_add(1, Relaxed);
    }

    fn cold(&self) -> MutexGuard<'_, Cold> {
        self.cold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

fn index_of(stage: Stage) -> u8 {
    (stage.index() % STAGES) as u8
}

#[cfg(test)]
mod tests;
