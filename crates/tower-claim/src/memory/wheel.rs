//! When to look at which record: a hierarchical timing wheel whose lists run through the slots.
//!
//! It keeps no times, eight bytes per record and a few hundred list heads. A popped record is asked when
//! it is due and put back if that is later: so cascades and postponed records are the same thing, and
//! each costs one pop of the few that every operation pays for. Nothing is ever moved in bulk.

use super::slab::{Links, NONE, Slab};
use crate::store::StoreTime;

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 7;
/// Set in `prev` of the first of a list; the rest is the list's number.
const HEAD: u32 = 1 << 31;
/// 1.024 ms. With seven levels of 64 the wheel spans 142 years; what is due later waits at its end.
const TICK_BITS: u32 = 10;
const SPAN: u64 = (1 << (BITS * LEVELS as u32)) - 1;

#[derive(Debug)]
pub(super) struct Wheel {
    /// No list begins before this tick.
    elapsed: u64,
    occupied: [u64; LEVELS],
    heads: Box<[[u32; SLOTS]; LEVELS]>,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            elapsed: 0,
            occupied: [0; LEVELS],
            heads: Box::new([[NONE; SLOTS]; LEVELS]),
        }
    }

    /// Puts a slot that is in no list where it is found once `due` has come, or somewhat earlier.
    pub(super) fn insert(&mut self, slab: &mut Slab, index: u32, due: StoreTime) {
        let tick = (due.as_micros() >> TICK_BITS) + 1;
        let tick = tick.clamp(self.elapsed, self.elapsed | SPAN);
        let differ = (self.elapsed ^ tick) | (SLOTS as u64 - 1);
        let level = ((u64::BITS - 1 - differ.leading_zeros()) / BITS) as usize;
        let slot = (tick >> (BITS * level as u32)) as usize % SLOTS;

        let next = self.heads[level][slot];
        if next != NONE {
            slab.get_mut(next).links.prev = index;
        }
        let prev = HEAD | (level * SLOTS + slot) as u32;
        slab.get_mut(index).links = Links { prev, next };
        self.heads[level][slot] = index;
        self.occupied[level] |= 1 << slot;
    }

    pub(super) fn remove(&mut self, slab: &mut Slab, index: u32) {
        let Links { prev, next } = slab.get(index).links;
        if prev == NONE {
            return;
        }
        if next != NONE {
            slab.get_mut(next).links.prev = prev;
        }
        if prev & HEAD == 0 {
            slab.get_mut(prev).links.next = next;
        } else {
            let list = (prev & !HEAD) as usize;
            let (level, slot) = (list / SLOTS, list % SLOTS);
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        }
        slab.get_mut(index).links = Links {
            prev: NONE,
            next: NONE,
        };
    }

    /// Takes out the next slot that may be due.
    pub(super) fn pop(&mut self, slab: &mut Slab, now: StoreTime) -> Option<u32> {
        let now = now.as_micros() >> TICK_BITS;
        let next = self.first_list().filter(|(begins, ..)| *begins <= now);
        let Some((begins, level, slot)) = next else {
            // Every list begins later, so all of them keep their place when seen from now.
            self.elapsed = self.elapsed.max(now);
            return None;
        };
        self.elapsed = begins.max(self.elapsed);
        let index = self.heads[level][slot];
        self.remove(slab, index);
        Some(index)
    }

    /// The list that begins first. Where two begin together, either may go first.
    fn first_list(&self) -> Option<(u64, usize, usize)> {
        let mut first: Option<(u64, usize, usize)> = None;
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            // All lists of a level are at or after `elapsed`, within its present round.
            let slot = self.occupied[level].trailing_zeros() as usize;
            let shift = BITS * level as u32;
            let round = self.elapsed >> (shift + BITS) << (shift + BITS);
            let begins = round + ((slot as u64) << shift);
            if first.is_none_or(|(other, ..)| begins < other) {
                first = Some((begins, level, slot));
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Key;
    use crate::record::Record;

    fn at(micros: u64) -> StoreTime {
        StoreTime::from_micros(micros)
    }

    proptest! {
        /// Against a plain list: whatever is due is found when asked for, a tick later at most.
        #[test]
        fn all_that_is_due_is_found(steps in prop::collection::vec((0u64..4, 0u64..1 << 44, 0u32..40), 1..200)) {
            let mut slab = Slab::new();
            let mut wheel = Wheel::new();
            let mut waiting: Vec<(u32, u64)> = Vec::new();
            let mut now = 0u64;
            for (what, time, exponent) in steps {
                let time = time >> exponent;
                match what {
                    0 | 1 => {
                        let index = slab.insert(Key::from_bytes([0; 32]), Record::vacant());
                        wheel.insert(&mut slab, index, at(now + time));
                        waiting.push((index, now + time));
                    }
                    2 if !waiting.is_empty() => {
                        let (index, _) = waiting.swap_remove(time as usize % waiting.len());
                        wheel.remove(&mut slab, index);
                        slab.remove(index);
                    }
                    _ => {
                        now += time;
                        while let Some(index) = wheel.pop(&mut slab, at(now)) {
                            let place = waiting.iter().position(|(i, _)| *i == index).unwrap();
                            let due = waiting[place].1;
                            if due <= now {
                                waiting.swap_remove(place);
                                slab.remove(index);
                            } else {
                                wheel.insert(&mut slab, index, at(due));
                            }
                        }
                        for (index, due) in &waiting {
                            prop_assert!(due + (1 << TICK_BITS) > now, "{index} was due at {due}, it is {now}");
                        }
                    }
                }
            }
        }
    }
}
