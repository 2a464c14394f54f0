//! The record of one key, and its moves: pure functions of the record, a request and the time.
//!
//! An engine that keeps records itself (memory, redb) keeps these. A key never seen is a
//! [vacant](Record::vacant) record; a record that is [forgettable](Record::is_forgettable) has nothing
//! left to say, and an engine treats it as vacant whether it has dropped it yet or not. So the answers do
//! not depend on when an engine cleans up.

mod claim;
mod encoding;
mod limit;
mod operator;
mod owner;
mod phase;
mod spent;
#[cfg(test)]
mod tests;
mod view;

use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::store::{StoreTime, Value};
use crate::{LapsePolicy, Nonce, Settings, StoreError, Token};
pub use claim::Asker;
pub use encoding::UnreadableRecord;
use limit::Limit;
use phase::Phase;
use spent::Spent;
pub use view::Watching;

/// The two clocks of an engine, read once per move.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// Judges every span: leases, keeps, `not_after`.
    pub now: StoreTime,
    /// Wall time in milliseconds, for the clock part of tokens only.
    pub unix_ms: u64,
}

/// What a store keeps of one key.
#[derive(Debug, Clone)]
pub struct Record {
    phase: Phase,
    /// The last token: granted, or raised by an operator.
    token: Token,
    /// The last nonce granted; of a record that was never granted, the one that was refused.
    nonce: Nonce,
    /// The owner's own terms: they judge the record, never the asker's.
    terms: Option<Arc<Settings>>,
    /// When the phase began. Held: the grant.
    since: StoreTime,
    /// Free: the "not before". Held: the end of the lease. Done, unknown: the end of the keep.
    until: StoreTime,
    /// Other nonces that are never to be granted.
    spent: Spent,
}

/// Terms that no other record shares: behind two counts.
const OWN_TERMS: usize = size_of::<Settings>() + 2 * size_of::<usize>();

/// What a record is worth now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Free,
    Held,
    /// Held, unmarked, under `TakeOver`, and past its lease.
    Lapsed,
    Unknown,
    Done,
}

impl Record {
    /// The record of a key never seen.
    pub fn vacant() -> Self {
        Self {
            phase: Phase::Vacant,
            token: Token::ZERO,
            nonce: Nonce::from_bytes([0; 16]),
            terms: None,
            since: StoreTime::default(),
            until: StoreTime::default(),
            spent: Spent::default(),
        }
    }

    /// Whether it is the record of a key never seen.
    pub fn is_vacant(&self) -> bool {
        matches!(self.phase, Phase::Vacant)
    }

    fn standing(&self, now: StoreTime) -> Standing {
        match &self.phase {
            Phase::Vacant | Phase::Free { .. } => Standing::Free,
            Phase::Held { .. } if now < self.until => Standing::Held,
            Phase::Held { .. } if now >= self.ends_at() => Standing::Free,
            Phase::Held { .. } if self.holds_on() => Standing::Unknown,
            Phase::Held { .. } => Standing::Lapsed,
            Phase::Done { .. } if now < self.until => Standing::Done,
            Phase::Unknown { .. } if now < self.until => Standing::Unknown,
            Phase::Done { .. } | Phase::Unknown { .. } => Standing::Free,
        }
    }

    /// Whether a lapse makes the outcome unknown.
    fn holds_on(&self) -> bool {
        let marked = matches!(self.phase, Phase::Held { marked: true, .. });
        marked || self.term(LapsePolicy::TakeOver, |terms| terms.on_lapse) == LapsePolicy::Hold
    }

    /// When the phase ends by itself. Nothing live does: a hold ends an unfinished keep *after its lapse*.
    fn ends_at(&self) -> StoreTime {
        match self.phase {
            Phase::Vacant | Phase::Free { .. } => self.since,
            Phase::Held { .. } => self
                .until
                .saturating_add(self.term(Duration::ZERO, |terms| terms.unfinished_keep)),
            Phase::Done { .. } | Phase::Unknown { .. } => self.until,
        }
    }

    /// Before this nobody is granted the key, were it free.
    fn not_before(&self) -> StoreTime {
        match self.phase {
            Phase::Held { .. } => {
                let cooled = self
                    .until
                    .saturating_add(self.term(Duration::ZERO, |terms| terms.cooling));
                cooled.max(self.min_hold_end())
            }
            Phase::Unknown { not_before, .. } => not_before,
            Phase::Vacant | Phase::Free { .. } | Phase::Done { .. } => self.until,
        }
    }

    /// The key stays taken until then, whatever becomes of the hold.
    fn min_hold_end(&self) -> StoreTime {
        self.since
            .saturating_add(self.term(Duration::ZERO, |terms| terms.min_hold))
    }

    /// Of a done record: nobody is granted the key before this, were its result gone.
    fn taken_until(&self) -> StoreTime {
        match self.phase {
            Phase::Done {
                stays_taken: true, ..
            } => self.min_hold_end().min(self.until),
            _ => self.since,
        }
    }

    fn term<T>(&self, none: T, of: impl FnOnce(&Settings) -> T) -> T {
        self.terms.as_deref().map_or(none, of)
    }

    /// Whether this nonce is the last one granted (or refused, where none was).
    fn is_last(&self, nonce: Nonce) -> bool {
        !self.is_vacant() && self.nonce == nonce
    }

    /// Remembers a nonce that is never to be granted, as long as its claim may be under way.
    fn remember(&mut self, nonce: Nonce, not_after: StoreTime, now: StoreTime) {
        if self.is_last(nonce) {
            if let Some(known) = self.phase.not_after_mut() {
                *known = (*known).max(Limit::of(not_after));
            }
        } else if now > not_after {
            // No copy of it can be applied any more.
        } else if self.is_vacant() {
            self.phase = Phase::Free {
                not_after: Limit::of(not_after),
            };
            self.nonce = nonce;
            self.since = now;
            self.until = now;
        } else {
            self.spent.remember(nonce, not_after, now);
        }
    }

    /// Frees the key. Nothing of the work binds any more.
    fn free(&mut self, since: StoreTime, not_before: StoreTime) {
        self.phase = Phase::Free {
            not_after: self.phase.not_after(),
        };
        self.since = since;
        self.until = not_before;
        self.terms = None;
    }

    /// The next token, or an error where none is left (a floor near [`Token::MAX`]): a token given twice
    /// would be worse than none.
    pub fn next_token(&self, floor: Token, unix_ms: u64) -> Result<Token, StoreError> {
        let token = Token::next(self.token, floor, unix_ms);
        if token > self.token && token > floor {
            Ok(token)
        } else {
            Err(StoreError::Unsupported(
                "a fencing token above 2^53 - 1: the floor is inflated",
            ))
        }
    }

    /// Turns a record that ended by time into a free one, which gives back its value. Changes no answer.
    pub fn settle(&mut self, now: StoreTime) {
        let ended = !matches!(self.phase, Phase::Vacant | Phase::Free { .. });
        if ended && self.standing(now) == Standing::Free {
            self.free(self.ends_at(), self.not_before());
        }
    }

    /// The process of every owner granted before `ended` has ended: a hold of theirs lapses then, if it has
    /// not lapsed before. What the lapse means, the record's own terms say, as ever.
    ///
    /// For an engine whose owners live in one process with it.
    pub fn lapse_owners(&mut self, ended: StoreTime) {
        if matches!(self.phase, Phase::Held { .. }) && self.since < ended {
            self.until = self.until.min(ended);
        }
    }

    /// Whether nothing would be lost with the record: it is free, its "not before" and the `not_after` of
    /// every call under way have passed, and the clock part alone gives a higher token.
    pub fn is_forgettable(&self, at: At) -> bool {
        self.standing(at.now) == Standing::Free
            && at.now >= self.not_before()
            && (self.is_vacant() || at.now > self.phase.not_after().time())
            && self.spent.latest().is_none_or(|latest| at.now > latest)
            && Token::next(Token::ZERO, Token::ZERO, at.unix_ms) > self.token
    }

    /// When to look at the record again: to settle it, and once it is free, to forget it. A renewal only
    /// moves this on.
    pub fn due_at(&self) -> StoreTime {
        match self.phase {
            Phase::Held { .. } | Phase::Done { .. } | Phase::Unknown { .. } => self.ends_at(),
            Phase::Vacant | Phase::Free { .. } => {
                let last = self.phase.not_after().time();
                let calls = self.spent.latest().unwrap_or_default().max(last);
                self.until
                    .max(calls.saturating_add(Duration::from_micros(1)))
            }
        }
    }

    /// How long the wall clock needs to pass the record's token.
    pub fn token_ahead(&self, unix_ms: u64) -> Duration {
        Duration::from_millis((self.token.get() / 1024 + 1).saturating_sub(unix_ms))
    }

    /// When the last grant, finish, release or break was.
    pub fn since(&self) -> StoreTime {
        self.since
    }

    /// Heap bytes beside the record itself.
    pub fn heap_bytes(&self) -> usize {
        let (body, terms) = match &self.phase {
            Phase::Done {
                body, stays_taken, ..
            } => {
                let own_terms = if *stays_taken { OWN_TERMS } else { 0 };
                (body.as_ref().map_or(0, Bytes::len), own_terms)
            }
            _ => (0, 0),
        };
        body + terms + self.spent.heap_bytes()
    }

    /// Keeps the outcome as a tombstone, where there is no room for the body.
    pub fn drop_body(&mut self) {
        if let Phase::Done { body, .. } = &mut self.phase {
            *body = None;
        }
    }

    /// Changes whenever a hold begins or ends other than by time.
    pub fn stamp(&self) -> (Token, bool) {
        (self.token, matches!(self.phase, Phase::Held { .. }))
    }
}

fn value_of(body: &Option<Bytes>) -> Value {
    match body {
        Some(body) => Value::Kept(body.clone()),
        None => Value::Tombstone,
    }
}
