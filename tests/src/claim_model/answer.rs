//! A call as the store sees it, what it answers, and what it did.

use super::config::{NonceId, Policy};

/// A call as it arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) nonce: NonceId,
    /// 0: not known to the sender.
    pub(super) token: u8,
    /// Ticks to the call's `not_after`.
    pub(super) not_after: u8,
}

/// What the store answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Granted { token: u8, rest: u8 },
    Mine { token: u8, rest: u8 },
    Ended,
    Busy,
    Done,
    Cooling,
    Unknown,
    TooLate,
    Renewed { rest: u8 },
    Marked,
    Finished,
    Released,
    Already,
    Lost,
}

/// What a call did to the record, for the checkers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Granted,
    Renewed,
    Marked,
    Finished,
    Released,
}

/// Who asks for a grant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    pub(super) policy: Policy,
    pub(super) fingerprint: u8,
}
