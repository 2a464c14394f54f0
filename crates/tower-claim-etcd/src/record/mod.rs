//! The record of one key, and its moves: pure functions of what was read in one step.
//!
//! There is no time in them. A span is a key that exists or not ([`Seen`]), and a move says which keys to
//! write on which leases ([`Plan`]). Wall time (`now`, in milliseconds) only tells people how long ago
//! something was.

mod refusal;
mod view;

use bytes::Bytes;
use tower_claim::store::{LostReason, Owner};
use tower_claim::{Fingerprint, LapsePolicy, Nonce, Settings, StoreError, Token};

use crate::plan::On;

/// What a record was made into last. What it is worth now, its siblings decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Also after the lapse.
    Held,
    /// `None` is a tombstone.
    Done(Option<Bytes>),
    /// By a marked release or a break: the owner cannot finish it any more.
    Unknown,
    /// Free by an operator, and kept for a while: so the owner hears who ended its hold, and the operator
    /// whose reply was lost that it was done.
    Freed,
}

/// The etcd leases that are this record's alone, and end with it: of its hold, and the one that it lies on
/// itself. [`On::Nothing`] where there is none, or others lie on it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leases {
    pub(crate) live: On,
    pub(crate) cool: On,
    pub(crate) keep: On,
}

/// What is stored of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) phase: Phase,
    pub(crate) nonce: Nonce,
    pub(crate) token: Token,
    /// The token is at least this one, and not below the revision that wrote the record. False once it was
    /// written again: then it is this one.
    pub(crate) by_revision: bool,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) terms: Settings,
    /// The lease as etcd granted it, in seconds.
    pub(crate) lease_secs: u64,
    pub(crate) attempt: u32,
    pub(crate) progress: u64,
    pub(crate) marked: bool,
    pub(crate) revoke_asked: bool,
    /// By the writer's wall clock, in milliseconds, for people: when the phase began, when the owner renewed
    /// last, when the keep ends.
    pub(crate) since: u64,
    pub(crate) last_beat: u64,
    pub(crate) until: u64,
    pub(crate) leases: Leases,
}

/// A record with the revision that wrote it; its token is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) record: Record,
    pub(crate) revision: i64,
    /// The etcd lease it lies on: its own, or one that a batch of beats shares.
    pub(crate) lease: i64,
}

/// All of a key, read in one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) record: Option<Kept>,
    /// The hold has not lapsed: the etcd lease of its liveness.
    pub(crate) live: Option<i64>,
    /// About when the cooling and the minimum hold end, while they last.
    pub(crate) cool: Option<u64>,
    pub(crate) wait: Option<u64>,
    /// A token that outlives its record, and the revision that wrote it.
    pub(crate) floor: Option<(Token, i64)>,
    /// The asker's nonce is never to be granted, or was.
    pub(crate) spent: bool,
    /// Of the store, at the read.
    pub(crate) revision: i64,
}

/// What a record is worth now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Free,
    Held,
    /// Held, unmarked, under `TakeOver`, and past its lease.
    Lapsed,
    Unknown,
    Done,
}

impl Record {
    /// Whether a lapse makes the outcome unknown.
    pub(crate) fn holds_on(&self) -> bool {
        self.marked || self.terms.on_lapse == LapsePolicy::Hold
    }

    /// The next wall time estimate of the lapse.
    fn lapse(&self) -> u64 {
        self.last_beat + self.lease_secs * 1000
    }
}

impl Seen {
    pub(crate) fn standing(&self) -> Standing {
        let Some(Kept { record, .. }) = &self.record else {
            return Standing::Free;
        };
        match record.phase {
            Phase::Held if self.live.is_some() => Standing::Held,
            Phase::Held if record.holds_on() => Standing::Unknown,
            Phase::Held => Standing::Lapsed,
            Phase::Done(_) => Standing::Done,
            Phase::Unknown => Standing::Unknown,
            Phase::Freed => Standing::Free,
        }
    }

    /// The record, if this nonce was the last one granted.
    pub(crate) fn of(&self, nonce: Nonce) -> Option<&Record> {
        let record = self.record.as_ref().map(|kept| &kept.record);
        record.filter(|record| record.nonce == nonce)
    }

    fn last(&self) -> Option<&Record> {
        self.record.as_ref().map(|kept| &kept.record)
    }

    pub(crate) fn token(&self) -> Token {
        self.last().map_or(Token::ZERO, |record| record.token)
    }

    /// The token of the next grant is at least this one, and not below the revision that grants it.
    pub(crate) fn next_token(&self, floor: Token) -> Result<Token, StoreError> {
        let kept = self.floor.map_or(Token::ZERO, |(token, _)| token);
        let last = self.token().max(kept).max(floor).get();
        Token::new(last + 1).ok_or(StoreError::Unsupported(
            "a fencing token above 2^53 - 1: the floor is inflated",
        ))
    }

    /// Why this owner does not hold the key any more.
    pub(crate) fn loss(&self, owner: Owner) -> Result<&Record, LostReason> {
        let record = self.of(owner.nonce).ok_or(LostReason::Superseded)?;
        if record.token != owner.token {
            // Nobody else was granted the key, and the token is another one: an operator raised it.
            return Err(LostReason::Broken);
        }
        match record.phase {
            Phase::Held if self.live.is_some() => Ok(record),
            Phase::Held => Err(LostReason::Lapsed),
            _ => Err(LostReason::Superseded),
        }
    }
}
