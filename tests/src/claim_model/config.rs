//! What one run of the model ranges over.

/// An owner: 0 is A, 1 is B.
pub(super) type Who = usize;

/// A nonce: two for each owner, `2 * owner + draw`.
pub(super) type NonceId = usize;

/// Nonces in the model.
pub(super) const NONCES: usize = 4;

/// A number of ticks that never passes.
pub const NEVER: u8 = 7;

/// One tick less, down to zero; [`NEVER`] stays.
pub(super) fn down(ticks: u8) -> u8 {
    if ticks == NEVER {
        NEVER
    } else {
        ticks.saturating_sub(1)
    }
}

/// Whose nonce it is.
pub(super) fn owner_of(nonce: NonceId) -> Who {
    nonce / 2
}

/// What a lapse means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Another may take over.
    TakeOver,
    /// The outcome is unknown from then on.
    Hold,
}

/// Times (in ticks), settings of the two owners, and how much the owners and the network may do.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Its name in the report.
    pub name: &'static str,
    /// A hold without renewal.
    pub lease: u8,
    /// How long nobody is granted the key after a lapse.
    pub cooling: u8,
    /// From the first sending of a claim to its `not_after`.
    pub not_after: u8,
    /// How long a result is kept.
    pub keep: u8,
    /// How long an unfinished record stays after its lapse.
    pub unfinished_keep: u8,
    /// The lapse policy each owner writes into its record.
    pub policy: [Policy; 2],
    /// The fingerprint each owner claims with.
    pub fingerprint: [u8; 2],
    /// How many nonces each owner may draw.
    pub nonces: [u8; 2],
    /// How often each call may be sent: claim, renew, mark, finish, release. 0: not in this run.
    pub sends: Sends,
    /// Whether the reply that grants a claim may be heard late.
    pub late_replies: bool,
    /// Whether owners do the work whose effect is counted.
    pub effects: bool,
    /// Whether one owner may crash.
    pub crash: bool,
}

/// How often one claim may send each of its calls.
#[derive(Debug, Clone, Copy)]
pub struct Sends {
    /// `claim`.
    pub claim: u8,
    /// `renew`: as a repeat, or as the next beat.
    pub renew: u8,
    /// `mark`.
    pub mark: u8,
    /// `finish`.
    pub finish: u8,
    /// `release`, the clean-up by nonce included.
    pub release: u8,
}

impl Config {
    /// Beyond this the time since a lapse makes no difference any more.
    pub(super) fn lapse_cap(&self) -> u8 {
        if self.unfinished_keep == NEVER {
            self.cooling
        } else {
            self.unfinished_keep.max(self.cooling)
        }
    }
}
