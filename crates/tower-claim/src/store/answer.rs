//! What a store answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{Fingerprint, Key, Nonce, Token};

/// The states of a record. A key never seen is `free` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Claimable, perhaps after a "not before".
    Free,
    /// Somebody does the work.
    Held,
    /// Finished, the result is kept.
    Done,
    /// Begun, and nobody knows how it ended.
    Unknown,
}

impl State {
    /// `free`, `held`, `done`, `unknown`.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Free => "free",
            State::Held => "held",
            State::Done => "done",
            State::Unknown => "unknown",
        }
    }
}

/// The result of finished work.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// Kept whole.
    Kept(Bytes),
    /// The work is done, its result was not kept: too big, endless, or no room.
    Tombstone,
}

impl fmt::Debug for Value {
    /// How long it is: what is kept may be anybody's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(bytes) => write!(f, "Kept({} bytes)", bytes.len()),
            Self::Tombstone => f.write_str("Tombstone"),
        }
    }
}

/// Answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claimed {
    /// The key is held by this nonce from now on.
    Granted(Grant),
    /// This nonce holds the key already: a repeated call. **Grants nothing**, says what is left; with too
    /// little rest, release and draw a new nonce.
    Mine {
        /// The token of the standing grant.
        token: Token,
        /// What is left of the lease.
        rest: Duration,
        /// The [`attempt`](Grant::attempt) of the standing grant: its owner may not have heard of it.
        attempt: u32,
    },
    /// This nonce had its grant, or was refused one, and is over: it is never granted again.
    Ended,
    /// Another nonce holds the key. Also a lapsed hold that this claim may not take over because its
    /// fingerprint differs.
    Busy(Busy),
    /// Finished within its keep.
    Done(DoneRecord),
    /// Nobody is granted the key for a while yet.
    Cooling(Cooling),
    /// Begun, and nobody knows how it ended.
    Unknown(Unknown),
    /// The call arrived past its `not_after`, by the store's clock. Nothing was changed.
    TooLate,
}

/// The key is held by this nonce from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Above every token granted under this key before.
    pub token: Token,
    /// The lease, as the engine granted it.
    pub lease: Duration,
    /// 1 for the first owner of a piece of work, one more for each takeover.
    pub attempt: u32,
    /// The lapsed owner before, if the work was taken over.
    pub took_over: Option<TookOver>,
}

impl Grant {
    /// Two grants of one claim over several keys, under one token, as one: the later attempt, and the lapsed
    /// owner of the first that had one.
    #[must_use]
    pub fn together_with(self, other: Grant) -> Grant {
        Grant {
            attempt: self.attempt.max(other.attempt),
            took_over: self.took_over.or(other.took_over),
            ..self
        }
    }
}

/// The lapsed owner before this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TookOver {
    /// Its token.
    pub token: Token,
    /// How long ago it was granted the key.
    pub since: Duration,
    /// How long ago it last renewed.
    pub last_beat: Duration,
    /// The last progress it told.
    pub progress: u64,
}

/// Another nonce holds the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The holder's token; wait for it with [`ClaimStore::watch`](crate::ClaimStore::watch).
    pub token: Token,
    /// How long ago it was granted the key.
    pub since: Duration,
    /// What is left of its lease; zero when it has lapsed.
    pub expires_in: Duration,
    /// Whether the asker's fingerprint equals the holder's.
    pub same_fingerprint: bool,
    /// The holder's label.
    pub label: Arc<str>,
}

/// Nobody is granted the key for a while yet: its owner crashed (cooling) or released early
/// (minimum hold).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cooling {
    /// How long.
    pub remaining: Duration,
    /// Whether the asker's fingerprint equals the last holder's. True where no fingerprint binds any more.
    pub same_fingerprint: bool,
}

/// Begun, and nobody knows how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// Token of the owner whose outcome is unknown.
    pub token: Token,
    /// Whether the asker's fingerprint equals that owner's.
    pub same_fingerprint: bool,
}

/// A finished record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneRecord {
    /// Token of the owner who finished.
    pub token: Token,
    /// Whether the asker's fingerprint equals that owner's. True for [`watch`](crate::ClaimStore::watch)
    /// and [`peek`](crate::ClaimStore::peek), which ask with none.
    pub same_fingerprint: bool,
    /// The result.
    pub value: Value,
    /// How long ago it was finished.
    pub finished: Duration,
    /// How long it is still kept.
    pub keep_left: Duration,
}

/// Answer to one beat of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewed {
    /// The hold goes on.
    Renewed {
        /// The lease left, as the engine granted it. Never shorter than before.
        rest: Duration,
        /// An operator asked the owner to stop.
        revoke_asked: bool,
    },
    /// The hold is over.
    Lost(LostReason),
    /// The engine could not tell (the row is locked by a stranger): doubt, not loss. Ask again until the
    /// deadline.
    Unsure,
}

/// Why a hold is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// Another nonce was granted the key, or the record is gone, so that another may have been.
    Superseded,
    /// An operator broke the hold.
    Broken,
    /// The lease lapsed. Nobody has taken over yet.
    Lapsed,
}

/// Answer to a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "go on only after `Marked`"]
pub enum Marked {
    /// The point of no return is in the record. Only now may the caller go on.
    Marked,
    /// The hold is over; do not begin.
    Lost(LostReason),
}

/// Answer to a finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "of a lost finish nothing was kept"]
pub enum Finish {
    /// The result stands. The same finish repeated answers this again; the first value wins.
    Finished,
    /// Another owner has the key, or an operator decided: the result was not kept.
    Lost,
}

/// Answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Release {
    /// The key is free, or unknown when the claim was marked.
    Released,
    /// This nonce does not hold the key any more, or never did. It is remembered, so that a claim under
    /// way with it is refused.
    Already,
    /// The nonce finished the work, or its hold became unknown: nothing was touched.
    Lost,
}

/// What became of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Watched {
    /// It was finished.
    Done(DoneRecord),
    /// It ended without a result, or lapsed.
    Ended,
    /// Another owner holds the key.
    Superseded {
        /// The new owner's token.
        token: Token,
    },
}

/// What a store keeps of a claim, for people and tests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordView {
    /// The key.
    pub key: Key,
    /// The state, judged now: a lapsed `Hold` shows as unknown.
    pub state: State,
    /// The owner's label.
    pub label: Arc<str>,
    /// The last token granted.
    pub token: Token,
    /// The last nonce granted.
    pub nonce: Nonce,
    /// The fingerprint that binds.
    pub fingerprint: Option<Fingerprint>,
    /// How long ago the state began.
    pub since: Duration,
    /// When it ends by itself: the lease (held), the keep (done, unknown), "not before" (free). Zero when
    /// that has passed.
    pub expires_in: Duration,
    /// How long ago the owner last renewed.
    pub last_beat: Duration,
    /// The last progress it told.
    pub progress: u64,
    /// Whether the point of no return was passed.
    pub marked: bool,
    /// Whether a held lease has lapsed.
    pub lapsed: bool,
    /// Of a hold, also one that lapsed: 1 for the first owner of the work, one more for each takeover. Zero
    /// where the record is no hold any more.
    pub attempt: u32,
}

impl RecordView {
    /// A view with everything at its zero: for stores, which then fill in what they know.
    pub fn new(key: Key, state: State) -> Self {
        Self {
            key,
            state,
            label: Arc::from(""),
            token: Token::ZERO,
            nonce: Nonce::from_bytes([0; 16]),
            fingerprint: None,
            since: Duration::ZERO,
            expires_in: Duration::ZERO,
            last_beat: Duration::ZERO,
            progress: 0,
            marked: false,
            lapsed: false,
            attempt: 0,
        }
    }
}
