//! Why an owner does not hold its claim any more.

/// Why an owner does not hold its claim any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The lease ran out: it was not renewed, or `max_hold` has passed.
    Expired,
    /// Another owner has the key, or may have: the record names another nonce or is gone.
    Stolen,
    /// An operator broke the hold.
    Broken,
    /// The work did not move for its `stall_after`.
    Stalled,
    /// The lease ran out while the store did not answer the beats: an outage, not a thief.
    StoreUnreachable,
    /// The owner itself ended it: a finish or a release was sent.
    Ended,
}

impl Loss {
    /// `expired`, `stolen`, `broken`, `stalled`, `store-unreachable`, `ended`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Loss::Expired => "expired",
            Loss::Stolen => "stolen",
            Loss::Broken => "broken",
            Loss::Stalled => "stalled",
            Loss::StoreUnreachable => "store-unreachable",
            Loss::Ended => "ended",
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Loss::Expired => "the claim's lease ran out",
            Loss::Stolen => "another owner has the claim",
            Loss::Broken => "an operator broke the claim",
            Loss::Stalled => "the work did not move for too long",
            Loss::StoreUnreachable => "the lease ran out while the store did not answer",
            Loss::Ended => "the claim was finished or released",
        })
    }
}

impl std::error::Error for Loss {}
