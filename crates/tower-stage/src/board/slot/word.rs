//! The word of a slot: lock, version and generation at once.
//!
//! The generation is in the high half, odd while a request has the slot; the version in the low half, odd
//! while somebody writes. A writer takes the word with one compare-and-swap that also proves that its
//! generation is still the slot's. A reader takes nothing: it reads, and reads again if the word has
//! changed meanwhile.

use std::hint;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::thread;

const WRITING: u64 = 1;

/// How often a reader tries to see a row whole.
/// Laws about whole rows have more: a busy machine may keep a writer from its core for longer.
const PATIENCE: u32 = if cfg!(test) { u32::MAX / 2 } else { 100_000 };

#[derive(Default)]
pub(super) struct Word(AtomicU64);

impl Word {
    pub(super) fn generation(&self) -> u32 {
        generation_of(self.0.load(Relaxed))
    }

    /// Writes the first values of a new generation, and answers it. Only for who took the slot from the free
    /// list: a free slot has no generation that a writer could prove, so there is nobody to lock out.
    pub(super) fn begin(&self, write: impl FnOnce(u32)) -> u32 {
        let word = self.0.load(Relaxed);
        let generation = generation_of(word).wrapping_add(1) | 1;
        // Who still reads the row that was here and sees a value of the new one sees as well that the word
        // has changed.
        fence(Release);
        write(generation);
        self.0.store(written(word, generation), Release);
        generation
    }

    /// The right to write, while the slot is of this generation.
    pub(super) fn lock(&self, generation: u32) -> Option<Locked<'_>> {
        let mut tries = 0;
        loop {
            let word = self.0.load(Relaxed);
            if generation_of(word) != generation {
                return None;
            }
            if word & WRITING == 0
                && self
                    .0
                    .compare_exchange_weak(word, word | WRITING, Acquire, Relaxed)
                    .is_ok()
            {
                // Keeps what is written under the lock from being seen before the lock.
                fence(Release);
                return Some(Locked {
                    word: &self.0,
                    next: written(word, generation),
                });
            }
            relax(&mut tries);
        }
    }

    /// Reads all values at one instant; `None` if no request has the slot. Blocks no writer.
    pub(super) fn read<T>(&self, read: impl Fn(u32) -> T) -> Option<T> {
        let mut tries = 0;
        loop {
            let before = self.0.load(Acquire);
            let generation = generation_of(before);
            if generation.is_multiple_of(2) {
                return None;
            }
            let values = read(generation);
            fence(Acquire);
            let whole = before & WRITING == 0 && self.0.load(Relaxed) == before;
            // A row that is marked without a pause must not hold up the reader: then its numbers are of
            // two instants.
            if whole || tries > PATIENCE {
                return Some(values);
            }
            relax(&mut tries);
        }
    }
}

/// The right to write, given back by the drop.
#[must_use]
pub(super) struct Locked<'a> {
    word: &'a AtomicU64,
    next: u64,
}

impl Locked<'_> {
    /// Gives the slot free: what is written from now on under the old generation is late.
    pub(super) fn end(mut self) -> u32 {
        let free = generation_of(self.next).wrapping_add(1);
        self.next = word_of(free, self.next as u32);
        free
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.word.store(self.next, Release);
    }
}

/// The word after a write: of this generation, in a version of its own.
fn written(word: u64, generation: u32) -> u64 {
    word_of(generation, (word as u32).wrapping_add(2))
}

fn word_of(generation: u32, version: u32) -> u64 {
    (u64::from(generation) << 32) | u64::from(version)
}

fn generation_of(word: u64) -> u32 {
    (word >> 32) as u32
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
