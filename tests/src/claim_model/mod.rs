//! An exhaustive model of the claim protocol: everything that two owners, one key and a bad network can do,
//! searched breadth first to the fixpoint, with the promises checked at each step.
//!
//! **What is in it.** One key; owners A and B, each with one or two nonces; the store's rules
//! (`record.rs`); the owners' rules (`owner.rs`, `hearing.rs`); a network in which each call is sent up to twice, and
//! each copy arrives at any later time, in any order, or never, and its reply is heard or lost
//! (`network.rs`); one owner's crash at any moment. Time is discrete and kept as *ticks left*, so nothing
//! bounds how long a run lasts: a fixpoint speaks for runs of any length. Owners are never made to act, so
//! every pause is in it as well. Clocks are exact: drift is what the stop budget is for.
//!
//! **What is promised** (`properties.rs`): S2, S3, S4, S5, L1, C1, each a named checker over ghost
//! variables which no rule reads.
//!
//! **Which configuration covers what** (`configs.rs`; in all of them results outlive their keep):
//!
//! | Configuration | Takeover | Hold | Mark, effects | Late and repeated copies | Also |
//! |---|---|---|---|---|---|
//! | `TAKE_OVER` | both | | | claim, finish, release; a renewal | crash; claims that outlive the hold they began |
//! | `LATE_REPLIES` | both | | | the same | crash; grants heard late |
//! | `SECOND_NONCE` | both | | | claim; renewal, finish, release late | calls of A's first nonce meet its second |
//! | `HOLD` | | both | effect without a mark | claim, finish, release; a renewal | crash |
//! | `MARK` | both | | both | claim, mark, finish, release | crash |
//! | `MARK_AND_RENEW` | both | | both | claim; all others late | crash |
//! | `MIXED` | B | A | both | claim; all others late | crash, cooling |
//! | `UNFINISHED_KEEP` | A | B | | claim, finish, release; a renewal | crash, cooling, two fingerprints, unfinished records pass |
//!
//! **What is not in it**: `break`, `resolve`, `min_hold`, several keys, the guard, drifting clocks, a store
//! that forgets what it answered; more than one renewal for each nonce; effects that outlast an unfinished
//! keep (by then a second run is allowed).
//!
//! A variant is the protocol without one of its [`Rules`]; the search then ends with the shortest [`Trace`]
//! to a broken promise.

mod action;
mod answer;
mod bits;
mod config;
mod configs;
mod hearing;
mod network;
mod owner;
mod properties;
mod record;
mod rules;
mod search;
mod world;

pub use config::{Config, NEVER, Policy, Sends};
pub use properties::{Breach, Property};
pub use rules::Rules;
pub use search::{Report, Trace, search};

/// A configuration under a set of rules.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// What it ranges over.
    pub config: Config,
    /// The rules in force.
    pub rules: Rules,
}

impl Model {
    /// How long an owner may believe an answer to a call that it sent `age` ticks ago.
    fn believable(&self, rest: u8, age: u8) -> u8 {
        if self.rules.deadline_from_sending {
            rest.saturating_sub(age)
        } else {
            rest
        }
    }

    /// How long an owner repeats its finish.
    fn finish_budget(&self) -> u8 {
        if self.rules.finish_is_given_up {
            (self.config.keep / 2).min(self.config.lease)
        } else {
            NEVER
        }
    }
}
