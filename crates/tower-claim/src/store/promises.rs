//! Which promises an event may weaken.

use std::fmt;

/// Something that happens to an engine, not to its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// An operator wiped its data.
    Flush,
    /// A replica was promoted that lacked the last writes.
    Failover,
    /// Its clock was stepped.
    MovedClock,
    /// It crashed and came back, perhaps without what it had not flushed to disk yet.
    Restart,
}

impl Event {
    /// All of them, in the order of the table of promises.
    pub const ALL: &'static [Event] = &[
        Event::Flush,
        Event::Failover,
        Event::MovedClock,
        Event::Restart,
    ];
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::Flush => "a flush",
            Event::Failover => "a failover",
            Event::MovedClock => "a moved clock",
            Event::Restart => "a restart",
        })
    }
}

/// A promise that some engines cannot keep over every [`Event`].
///
/// The others no engine may weaken, so they are not here: what a guarded resource has accepted never goes
/// back; a call that is repeated or late has the effect of one; whoever waits is woken or timed out; a
/// dropped future leaves nothing behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Promise {
    /// Tokens of grants strictly increase per key. Where they do not, the guard refuses, and the owner
    /// claims anew above the guard's floor.
    RisingTokens,
    /// At most one owner believes that it holds the key.
    OneOwner,
    /// One key and fingerprint has at most one finished result within its keep.
    OneResult,
    /// After a crash of its owner the key is claimable, or answered as unknown, within lease and cooling.
    ClaimableAgain,
}

impl Promise {
    /// All of them, in the order of the table of promises.
    pub const ALL: &'static [Promise] = &[
        Promise::RisingTokens,
        Promise::OneOwner,
        Promise::OneResult,
        Promise::ClaimableAgain,
    ];
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Promise::RisingTokens => "rising tokens",
            Promise::OneOwner => "one owner",
            Promise::OneResult => "one result",
            Promise::ClaimableAgain => "claimable again",
        })
    }
}

/// Which events may weaken which promises.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Weakened {
    /// One bit for each pair.
    pairs: u16,
}

impl Weakened {
    /// No event weakens any promise.
    pub const NOTHING: Self = Self { pairs: 0 };

    const fn pair(event: Event, promise: Promise) -> u16 {
        1 << (event as u16 * 4 + promise as u16)
    }

    /// These, and that the event may weaken these promises.
    #[must_use]
    pub const fn with(mut self, event: Event, promises: &[Promise]) -> Self {
        // Iterators do not run in constants.
        let mut next = 0;
        while next < promises.len() {
            self.pairs |= Self::pair(event, promises[next]);
            next += 1;
        }
        self
    }

    /// Whether the event may weaken the promise.
    pub const fn may(self, event: Event, promise: Promise) -> bool {
        self.pairs & Self::pair(event, promise) != 0
    }

    /// The promises the event may weaken.
    pub fn by(self, event: Event) -> impl Iterator<Item = Promise> {
        let all = Promise::ALL.iter().copied();
        all.filter(move |promise| self.may(event, *promise))
    }

    /// The cell of the table of promises.
    pub(super) fn write(self, event: Event, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut promises = self.by(event);
        match promises.next() {
            Some(first) => write!(f, "{first}")?,
            None => f.write_str("nothing")?,
        }
        promises.try_for_each(|promise| write!(f, ", {promise}"))
    }
}

impl fmt::Debug for Weakened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Event::ALL.iter().map(|event| (event, self.by(*event)));
        let some = all.map(|(event, promises)| (event, promises.collect::<Vec<_>>()));
        f.debug_map()
            .entries(some.filter(|(_, promises)| !promises.is_empty()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_is_told_apart_from_every_other() {
        for event in Event::ALL {
            for promise in Promise::ALL {
                let one = Weakened::NOTHING.with(*event, &[*promise]);
                let told: Vec<_> = Event::ALL
                    .iter()
                    .flat_map(|event| one.by(*event).map(move |promise| (*event, promise)))
                    .collect();
                assert_eq!(told, [(*event, *promise)]);
            }
        }
    }
}
