//! The laws of the claim protocol, as a test suite for every store.
//!
//! One call runs every law of [`ClaimStore`] against a store and answers a [`Report`];
//! the optional powers ([`ClaimMany`](crate::ClaimMany), [`ClaimAdmin`](crate::ClaimAdmin),
//! [`FenceStore`](crate::FenceStore)) have entry points of their own. A law is named by what it says
//! (`a_stale_owner_cannot_finish`), and a broken one is reported by that name with what was seen. The
//! suite itself never panics; [`Report::assert`] does.
//!
//! # For authors of a store
//!
//! ```
//! use std::time::Duration;
//! use tower_claim::conformance::{Suite, Time, Trouble};
//! # use tower_claim::ClaimStore;
//!
//! # async fn for_store<S: ClaimStore>(connect: impl AsyncFn() -> S + Clone) {
//! // An engine with a clock of its own: the laws wait in units of 100 ms.
//! let time = Time::Real { unit: Duration::from_millis(100), tolerance: Duration::from_millis(20) };
//! Suite::new(time.clone()).claim_store(&connect).await.assert();
//!
//! // Again behind each trouble: refused calls, slow calls, lost replies, calls delivered twice.
//! for trouble in Trouble::ALL {
//!     Suite::new(time.clone()).behind(trouble).claim_store(&connect).await.assert();
//! }
//! # }
//! ```
//!
//! The store is made anew for each law. Every law draws its own keys at random, so one database may serve
//! them all, and other users beside. The laws of [`Suite::claim_many`] are for engines that take any keys
//! together ([`MultiKey::Atomic`](crate::store::MultiKey::Atomic)).
//!
//! # Time
//!
//! Laws are written in *steps* of one unit: what happens at step 1 is over before step 2. With
//! [`Time::Manual`] the suite moves the clock itself. With [`Time::Real`] it waits, and **measures each
//! step**: a verdict of a law whose step took longer than `unit − tolerance` (a busy machine, a slow
//! engine) is thrown away, good or bad, and the law is run again, alone, at last with steps of four units. A law
//! that never kept its time
//! is reported as [`Verdict::Stalled`], which is no success. A watcher must answer within 10 units, and has 20 s
//! at least.
//!
//! What is *not* here: an engine that loses its memory (failover, restart, flush), and clocks of several
//! machines. Those need processes to kill.

#[macro_use]
mod law;
mod ask;
mod bench;
mod laws;
mod report;
mod schedule;
mod suite;
mod trouble;

pub use report::{Outcome, Report, Verdict};
pub use suite::{Suite, Time};
pub use trouble::Trouble;

use crate::ClaimStore;

/// Runs every law of [`ClaimStore`] against the stores that `make_store` makes, one for each law. Short for
/// [`Suite::claim_store`].
///
/// ```
/// # use tower_claim::testing::ManualClock;
/// # use tower_claim::{ClaimStore, conformance::{self, Time}};
/// # async fn with<S: ClaimStore>(my_store: impl Fn(ManualClock) -> S) {
/// let clock = ManualClock::new();
/// let report = conformance::run(async || my_store(clock.clone()), Time::Manual(clock.clone())).await;
/// report.assert();
/// # }
/// ```
pub async fn run<S: ClaimStore>(make_store: impl AsyncFn() -> S, time: Time) -> Report {
    Suite::new(time).claim_store(make_store).await
}

/// The names of all laws, by the entry point that runs them: `claim_store`, `claim_many`, `claim_admin`,
/// `fence_store`.
pub fn laws() -> impl Iterator<Item = (&'static str, &'static str)> {
    laws::names()
}
