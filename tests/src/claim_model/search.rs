//! Breadth-first search to the fixpoint.

use std::fmt;

use super::Model;
use super::bits::Packed;
use super::properties::{Breach, Property};
use super::world::{Step, World};

/// What a search found.
#[derive(Debug)]
pub struct Report {
    /// States seen.
    pub states: usize,
    /// Whether all reachable states were seen. False for a search that was cut, or ended by a breach.
    pub fixpoint: bool,
    /// The shortest way to a broken promise.
    pub refuted: Option<Trace>,
}

/// A way to a broken promise.
#[derive(Debug)]
pub struct Trace {
    /// The promise.
    pub breach: Breach,
    /// Each step, and the record after it.
    pub steps: Vec<String>,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {:>2}. {step}", number + 1)?;
        }
        write!(f, "  => {}", self.breach)
    }
}

/// The states seen, in the order of the search, each with the one it was reached from.
struct Seen {
    states: Vec<Packed>,
    parents: Vec<u32>,
    /// Open addressing. A slot holds an index into `states` plus one, and above it a part of the hash, so
    /// that other states are told apart without a look at them; 0 is an empty slot.
    slots: Vec<u64>,
}

impl Seen {
    fn new() -> Self {
        Self {
            states: Vec::new(),
            parents: Vec::new(),
            slots: vec![0; 1 << 16],
        }
    }

    /// False when it was seen before.
    fn insert(&mut self, state: Packed, parent: u32) -> bool {
        if self.states.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let hash = hash(&state);
        let mut at = hash as usize & mask;
        while self.slots[at] != 0 {
            let slot = self.slots[at];
            if (slot ^ hash) >> 32 == 0 && self.states[slot as u32 as usize - 1] == state {
                return false;
            }
            at = (at + 1) & mask;
        }
        self.states.push(state);
        self.parents.push(parent);
        self.slots[at] = slot(hash, self.states.len());
        true
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        self.slots = vec![0; mask + 1];
        for (index, state) in self.states.iter().enumerate() {
            let hash = hash(state);
            let mut at = hash as usize & mask;
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot(hash, index + 1);
        }
    }
}

fn slot(hash: u64, number: usize) -> u64 {
    (hash >> 32 << 32) | number as u64
}

fn hash(state: &Packed) -> u64 {
    let mut hash = 0_u64;
    for word in state {
        hash = (hash.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    // A product's high bits know all its factors' bits, its low ones do not.
    hash ^ (hash >> 31)
}

/// Searches all that the model allows, up to `limit` states, and stops when a promise is broken: any of
/// them, or the one `sought`.
pub fn search(model: &Model, limit: usize, sought: Option<Property>) -> Report {
    let mut seen = Seen::new();
    seen.insert(World::default().pack(), 0);
    let mut next = 0;
    let mut steps = Vec::new();
    while next < seen.states.len() {
        if seen.states.len() > limit {
            return report(&seen, false, None);
        }
        World::unpack(seen.states[next]).steps(model, &mut steps);
        for step in steps.drain(..) {
            let inserted = seen.insert(step.world.pack(), next as u32);
            let checked = if inserted {
                step.checked.and_then(|()| step.world.check(model))
            } else {
                step.checked
            };
            if let Err(breach) = checked
                && sought.is_none_or(|sought| sought == breach.property)
            {
                let trace = trace(model, &seen, next, &step, breach);
                return report(&seen, false, Some(trace));
            }
        }
        next += 1;
    }
    report(&seen, true, None)
}

fn report(seen: &Seen, fixpoint: bool, refuted: Option<Trace>) -> Report {
    Report {
        states: seen.states.len(),
        fixpoint,
        refuted,
    }
}

/// Walks back to the start, and tells the way from there.
fn trace(model: &Model, seen: &Seen, mut at: usize, last: &Step, breach: Breach) -> Trace {
    let mut steps = vec![told(last)];
    while at != 0 {
        let from = seen.parents[at] as usize;
        let mut ways = Vec::new();
        World::unpack(seen.states[from]).steps(model, &mut ways);
        let taken = ways
            .iter()
            .find(|step| step.world.pack() == seen.states[at]);
        steps.extend(taken.map(told));
        at = from;
    }
    steps.reverse();
    Trace { breach, steps }
}

fn told(step: &Step) -> String {
    format!("{:<60} [{}]", step.action.to_string(), step.world.store)
}
