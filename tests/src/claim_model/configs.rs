//! The configurations, each run to its fixpoint.

use super::config::{Config, NEVER, Policy, Sends};

const fn sends(claim: u8, renew: u8, mark: u8, finish: u8, release: u8) -> Sends {
    Sends {
        claim,
        renew,
        mark,
        finish,
        release,
    }
}

impl Config {
    /// Both take over. One nonce each; claim, finish and release sent twice, a renewal once; a crash. A
    /// claim may arrive after the hold it once began has lapsed and passed to the other.
    pub const TAKE_OVER: Self = Self {
        name: "take over",
        lease: 2,
        cooling: 0,
        not_after: 3,
        keep: 2,
        unfinished_keep: NEVER,
        policy: [Policy::TakeOver; 2],
        fingerprint: [0; 2],
        nonces: [1, 1],
        sends: sends(2, 1, 0, 2, 2),
        late_replies: false,
        effects: false,
        crash: true,
    };

    /// Grants that are heard late.
    pub const LATE_REPLIES: Self = Self {
        name: "late replies",
        not_after: 2,
        late_replies: true,
        ..Self::TAKE_OVER
    };

    /// A claims again with a second nonce while calls of the first are still under way.
    pub const SECOND_NONCE: Self = Self {
        name: "second nonce",
        not_after: 2,
        nonces: [2, 1],
        sends: sends(2, 1, 0, 1, 1),
        crash: false,
        ..Self::TAKE_OVER
    };

    /// Both hold: the work is done once without a mark.
    pub const HOLD: Self = Self {
        name: "hold",
        not_after: 2,
        policy: [Policy::Hold; 2],
        effects: true,
        ..Self::TAKE_OVER
    };

    /// Both take over, and mark before the work; the mark is sent twice.
    pub const MARK: Self = Self {
        name: "mark",
        not_after: 2,
        sends: sends(2, 0, 2, 2, 2),
        effects: true,
        ..Self::TAKE_OVER
    };

    /// The mark beside renewals.
    pub const MARK_AND_RENEW: Self = Self {
        name: "mark and renew",
        sends: sends(2, 1, 1, 1, 1),
        ..Self::MARK
    };

    /// A holds; B would take over, and marks.
    pub const MIXED: Self = Self {
        name: "mixed policies",
        cooling: 1,
        not_after: 2,
        policy: [Policy::Hold, Policy::TakeOver],
        sends: sends(2, 1, 1, 1, 1),
        effects: true,
        ..Self::TAKE_OVER
    };

    /// Unfinished records pass two ticks after their lapse, A's to be taken over before, B's held; two
    /// fingerprints.
    pub const UNFINISHED_KEEP: Self = Self {
        name: "unfinished keep",
        cooling: 1,
        unfinished_keep: 2,
        policy: [Policy::TakeOver, Policy::Hold],
        fingerprint: [0, 1],
        ..Self::TAKE_OVER
    };
}
