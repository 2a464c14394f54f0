//! One row of the table: who may write when, and how a reader sees it whole.
//!
//! The word of a slot is lock, version and generation at once: the generation in the high half, odd while
//! a request has the slot; the version in the low half, odd while somebody writes. A writer takes it with
//! one compare-and-swap that also proves that its generation is still the slot's. A reader takes nothing:
//! it reads, and reads again if the word has changed meanwhile.

use std::array;
use std::fmt;
use std::hint;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tower_claim::Clock;

use super::route::Route;
use super::times::{StageTimes, bits};
use crate::stage::STAGES;
use crate::{Blocker, Cause, Stage, WaitReason};

const WRITING: u64 = 1;

/// How often a reader tries to see a row whole.
const PATIENCE: u32 = 100_000;

/// What all slots of one table share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) late_marks: AtomicU64,
}

impl Shared {
    /// Nanoseconds since the clock's start.
    pub(crate) fn now(&self) -> u64 {
        let elapsed = self.clock.now().elapsed();
        elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
    }
}

pub(crate) struct Slot {
    word: AtomicU64,
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

/// What is left of a row when its request has ended.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) method: &'static str,
    pub(crate) route: Route,
    pub(crate) stage: Stage,
    pub(crate) total: u64,
    pub(crate) spent: StageTimes,
    pub(crate) verdict: Option<Cause>,
}

/// Names a row for ever: a slot, and which of its requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowId {
    index: u32,
    generation: u32,
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.index, self.generation.div_ceil(2))
    }
}

impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowId({self})")
    }
}

impl Slot {
    pub(crate) fn new(index: u32, shared: Arc<Shared>) -> Self {
        Self {
            word: AtomicU64::new(0),
            started: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            stage: AtomicU8::new(0),
            verdict: AtomicU8::new(0),
            polls: AtomicU32::new(0),
            touched: AtomicU32::new(0),
            spent: array::from_fn(|_| AtomicU64::new(0)),
            index,
            shared,
            cold: Mutex::new(Cold::default()),
        }
    }

    pub(crate) fn id(&self, generation: u32) -> RowId {
        RowId {
            index: self.index,
            generation,
        }
    }

    pub(crate) fn is_live(&self, generation: u32) -> bool {
        generation_of(self.word.load(Relaxed)) == generation
    }

    /// Begins a row. Only for who took the slot from the free list; answers the row's generation.
    pub(crate) fn open(&self, method: &'static str, route: Route) -> u32 {
        let before = generation_of(self.word.load(Relaxed));
        let generation = before.wrapping_add(1) | 1;
        {
            let mut cold = self.cold();
            cold.generation = generation;
            cold.method = method;
            cold.route = route;
        }
        let locked = self.lock_of(before);
        let now = self.shared.now();
        self.started.store(now, Relaxed);
        self.entered.store(now, Relaxed);
        self.stage.store(index_of(Stage::Received), Relaxed);
        self.verdict.store(0, Relaxed);
        self.polls.store(0, Relaxed);
        self.touched.store(1, Relaxed);
        if let Some(locked) = locked {
            locked.unlock_as(generation);
        }
        generation
    }

    pub(crate) fn mark(&self, generation: u32, stage: Stage) {
        let now = self.shared.now();
        match self.lock_of(generation) {
            Some(_locked) => self.enter(stage, now),
            None => self.late(),
        }
    }

    pub(crate) fn ends_as(&self, generation: u32, cause: Cause) {
        match self.lock_of(generation) {
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

    /// Ends the row. `None` if it is not this generation's.
    pub(crate) fn close(&self, generation: u32) -> Option<Closed> {
        let now = self.shared.now();
        let locked = self.lock_of(generation)?;
        let stage = self.stage();
        self.enter(stage, now);
        let total = self.entered.load(Relaxed) - self.started.load(Relaxed);
        let spent = self.spent();
        for index in bits(self.touched.load(Relaxed)) {
            self.spent[index].store(0, Relaxed);
        }
        let verdict = usize::from(self.verdict.load(Relaxed))
            .checked_sub(1)
            .and_then(|index| Cause::ALL.get(index).copied());
        let free = generation.wrapping_add(1);
        locked.unlock_as(free);

        let mut cold = self.cold();
        cold.generation = free;
        cold.waits.clear();
        Some(Closed {
            method: cold.method,
            route: std::mem::take(&mut cold.route),
            stage,
            total,
            spent,
            verdict,
        })
    }

    /// The row as it is now; `None` if no request has the slot. Blocks no mark.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let mut tries = 0_u32;
        let (generation, stage, started, entered, spent, polls) = loop {
            let before = self.word.load(Acquire);
            let generation = generation_of(before);
            if generation.is_multiple_of(2) {
                return None;
            }
            let read = (
                generation,
                self.stage(),
                self.started.load(Relaxed),
                self.entered.load(Relaxed),
                self.spent(),
                self.polls.load(Relaxed),
            );
            fence(Acquire);
            let whole = before & WRITING == 0 && self.word.load(Relaxed) == before;
            // A row that is marked without a pause must not hold up the reader: then its numbers are of
            // two instants.
            if whole || tries > PATIENCE {
                break read;
            }
            relax(&mut tries);
        };
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

    fn spent(&self) -> StageTimes {
        StageTimes::new(self.touched.load(Relaxed), |index| {
            self.spent[index].load(Relaxed)
        })
    }

    fn late(&self) {
        self.shared.late_marks.fetch_add(1, Relaxed);
    }

    fn cold(&self) -> MutexGuard<'_, Cold> {
        self.cold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to write, while the slot is of this generation.
    fn lock_of(&self, generation: u32) -> Option<Locked<'_>> {
        let mut tries = 0;
        loop {
            let word = self.word.load(Relaxed);
            if generation_of(word) != generation {
                return None;
            }
            if word & WRITING == 0
                && self
                    .word
                    .compare_exchange_weak(word, word | WRITING, Acquire, Relaxed)
                    .is_ok()
            {
                // Keeps what is written under the lock from being seen before the lock.
                fence(Release);
                return Some(Locked { slot: self, word });
            }
            relax(&mut tries);
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

struct Locked<'a> {
    slot: &'a Slot,
    word: u64,
}

impl Locked<'_> {
    fn unlock_as(mut self, generation: u32) {
        self.word = (u64::from(generation) << 32) | (self.word & u64::from(u32::MAX));
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let version = (self.word as u32).wrapping_add(2);
        let word = (self.word >> 32 << 32) | u64::from(version);
        self.slot.word.store(word, Release);
    }
}

fn generation_of(word: u64) -> u32 {
    (word >> 32) as u32
}

fn index_of(stage: Stage) -> u8 {
    (stage.index() % STAGES) as u8
}

/// A writer holds the word for a few instructions. If it was preempted there, let it run.
fn relax(tries: &mut u32) {
    *tries += 1;
    if tries.is_multiple_of(32) {
        thread::yield_now();
    } else {
        hint::spin_loop();
    }
}

#[cfg(test)]
mod tests;
