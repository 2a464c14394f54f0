//! The record of one key, and its moves: pure functions of what was read in one step.
//!
//! There is no time in them. A span is a key that exists or not ([`Seen`]), and a move says which keys to
//! write on which leases ([`Plan`]). Wall time (`now`, in milliseconds) only tells people how long ago
//! something was.

use std::time::Duration;

use bytes::Bytes;
use tower_claim::store::{
    Busy, Claimed, Cooling, DoneRecord, LostReason, Owner, RecordView, State, TookOver, Unknown,
    Value, Watched,
};
use tower_claim::{Fingerprint, Key, LapsePolicy, Nonce, Settings, StoreError, Token};

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

/// So long something that exists still lasts at least, whatever the wall clocks say.
const A_LITTLE: Duration = Duration::from_millis(250);

fn rest(until: u64, now: u64, most: Duration) -> Duration {
    Duration::from_millis(until.saturating_sub(now)).clamp(A_LITTLE.min(most), most)
}

fn ago(then: u64, now: u64) -> Duration {
    Duration::from_millis(now.saturating_sub(then))
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

    /// How long nobody is granted the key, were it free; zero when it may be.
    fn cooling(&self, now: u64) -> Duration {
        const LONG: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        let cool = self.cool.map(|told| match self.last() {
            Some(record) if record.phase == Phase::Held => {
                let cooling = u64::try_from(record.terms.cooling.as_millis()).unwrap_or(u64::MAX);
                record.lapse().saturating_add(cooling)
            }
            _ => told,
        });
        // A liveness key without its hold: the record ended a moment before it. It goes by itself.
        let stray = (self.live.is_some() && self.standing() != Standing::Held).then_some(now);
        let ends = [cool, self.wait, stray].into_iter().flatten().max();
        ends.map_or(Duration::ZERO, |until| rest(until, now, LONG))
    }

    /// Why a claim is not granted; `None` when it may be.
    pub(crate) fn refusal(
        &self,
        nonce: Nonce,
        fingerprint: Option<Fingerprint>,
        now: u64,
    ) -> Option<Claimed> {
        let standing = self.standing();
        if let Some(record) = self.of(nonce) {
            // Grants nothing: a full lease counted from a repeated call would make two believers.
            return Some(match record.phase {
                Phase::Held => Claimed::Mine {
                    token: record.token,
                    // At most: how much of it, etcd is asked.
                    rest: self
                        .live
                        .map_or(Duration::ZERO, |_| Duration::from_secs(record.lease_secs)),
                    attempt: record.attempt,
                },
                _ => Claimed::Ended,
            });
        }
        if self.spent {
            return Some(Claimed::Ended);
        }
        let cooling = self.cooling(now);
        let cools = |same_fingerprint| {
            Claimed::Cooling(Cooling {
                remaining: cooling,
                same_fingerprint,
            })
        };
        let Some(record) = self.last() else {
            return (!cooling.is_zero()).then(|| cools(true));
        };
        let same_fingerprint = record.fingerprint == fingerprint;
        let busy = || {
            Claimed::Busy(Busy {
                token: record.token,
                since: ago(record.since, now),
                expires_in: self.lease_left(record, now),
                same_fingerprint,
                label: record.terms.label.clone(),
            })
        };
        match standing {
            Standing::Held => Some(busy()),
            Standing::Done => self.done(same_fingerprint, now).map(Claimed::Done),
            Standing::Unknown => Some(Claimed::Unknown(Unknown {
                token: record.token,
                same_fingerprint,
            })),
            Standing::Lapsed if !cooling.is_zero() => Some(cools(same_fingerprint)),
            Standing::Lapsed if !same_fingerprint => Some(busy()),
            Standing::Free if !cooling.is_zero() => Some(cools(true)),
            Standing::Lapsed | Standing::Free => None,
        }
    }

    /// Who is taken over, and its attempt.
    pub(crate) fn took_over(&self, now: u64) -> (Option<TookOver>, u32) {
        match self.last() {
            Some(record) if self.standing() == Standing::Lapsed => {
                let took_over = TookOver {
                    token: record.token,
                    since: ago(record.since, now),
                    last_beat: ago(record.last_beat, now),
                    progress: record.progress,
                };
                (Some(took_over), record.attempt)
            }
            _ => (None, 0),
        }
    }

    /// What is left of the lease: zero once it has lapsed.
    fn lease_left(&self, record: &Record, now: u64) -> Duration {
        if self.live.is_some() {
            rest(record.lapse(), now, Duration::from_secs(record.lease_secs))
        } else {
            Duration::ZERO
        }
    }

    fn done(&self, same_fingerprint: bool, now: u64) -> Option<DoneRecord> {
        let record = self.last()?;
        let Phase::Done(body) = &record.phase else {
            return None;
        };
        Some(DoneRecord {
            token: record.token,
            same_fingerprint,
            value: body.clone().map_or(Value::Tombstone, Value::Kept),
            finished: ago(record.since, now),
            keep_left: ago(now, record.until),
        })
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

    /// What became of the hold with this token; how long it still lasts, about, while it goes on.
    pub(crate) fn watch(&self, token: Token, now: u64) -> Result<Watched, Duration> {
        let standing = self.standing();
        let Some(record) = self.last() else {
            return Ok(Watched::Ended);
        };
        if record.token == token {
            match standing {
                Standing::Held => Err(self.lease_left(record, now)),
                Standing::Done => Ok(self.done(true, now).map_or(Watched::Ended, Watched::Done)),
                _ => Ok(Watched::Ended),
            }
        } else {
            match standing {
                Standing::Held | Standing::Lapsed | Standing::Done if record.token > token => {
                    Ok(Watched::Superseded {
                        token: record.token,
                    })
                }
                _ => Ok(Watched::Ended),
            }
        }
    }

    /// The record as people see it.
    pub(crate) fn peek(&self, key: Key, now: u64) -> Option<RecordView> {
        let standing = self.standing();
        let cooling = self.cooling(now);
        let Some(record) = self.last() else {
            let mut view = RecordView::new(key, State::Free);
            view.expires_in = cooling;
            return (!cooling.is_zero()).then_some(view);
        };
        let keep = u64::try_from(record.terms.unfinished_keep.as_millis()).unwrap_or(u64::MAX);
        let lapse = record.lapse();
        let (state, since, expires_in) = match (standing, &record.phase) {
            (Standing::Free, _) => (State::Free, record.since, cooling),
            (Standing::Held | Standing::Lapsed, _) => {
                (State::Held, record.since, self.lease_left(record, now))
            }
            (Standing::Unknown, Phase::Held) => {
                let end = lapse.saturating_add(keep);
                (State::Unknown, lapse, ago(now, end))
            }
            (Standing::Unknown, _) => (State::Unknown, record.since, ago(now, record.until)),
            (Standing::Done, _) => (State::Done, record.since, ago(now, record.until)),
        };
        let mut view = RecordView::new(key, state);
        view.token = record.token;
        view.nonce = record.nonce;
        view.since = ago(since, now);
        view.expires_in = expires_in;
        if state == State::Free {
            return Some(view);
        }
        view.label = record.terms.label.clone();
        view.fingerprint = record.fingerprint;
        if matches!(record.phase, Phase::Held | Phase::Unknown) {
            view.last_beat = ago(record.last_beat, now);
            view.progress = record.progress;
            view.marked = record.marked;
            view.lapsed = record.phase == Phase::Held && self.live.is_none();
            if record.phase == Phase::Held {
                view.attempt = record.attempt;
            }
        }
        Some(view)
    }
}
