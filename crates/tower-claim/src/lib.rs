//! The claim: who does this piece of work, are they still at it, and what came out?
//!
//! A **claim** is the right to do one piece of work under one [`Key`]: granted to one owner, for a lease,
//! with a fencing [`Token`]. It ends by being *finished* with a result, *released* without one, or *lapsed*.
//!
//! - **One owner.** While [`Claim::check`] is `Ok`, nobody else believes that it holds the key.
//! - **One result.** Within its keep a key has one finished result; a superseded owner's finish is refused.
//! - **Rising tokens.** A resource that compares them ([`FenceStore`]) refuses a stale owner under any timing.
//! - **No harm in repeats.** A call repeated after a lost answer, or come late, has the effect of one.
//! - **Nothing left behind.** Each future may be dropped at each await; a crash blocks a key for its lease.
//! - *Not*: to stop a paused process from writing (compare the token where the write happens), nor to make
//!   an effect happen exactly once (a crash fits between the effect and its finish).
//!
//! ```
//! use std::time::Duration;
//! use tower_claim::store::{Finish, Value};
//! use tower_claim::{Attempt, Keeper, Key, MemoryStore, Namespace, Terms, Token, Use};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keeper = Keeper::new(MemoryStore::new());
//! let terms = Terms::builder(Duration::from_secs(10)).build()?;
//! let key = Key::builder(Use::Lease, &Namespace::default()).part("invoice 2025-03").build();
//!
//! let Attempt::Granted(claim) = keeper.claim(key, None, &terms, Token::ZERO).await? else {
//!     return Ok(()); // somebody else is at it, or was
//! };
//! // A rival, in this process or another, while the work goes on:
//! let rival = keeper.claim(key, None, &terms, Token::ZERO).await?;
//! assert!(matches!(rival, Attempt::Busy(holder) if holder.token == claim.token()));
//!
//! claim.check()?; // still ours? Then write, and send `claim.token()` along.
//! let receipt = Value::Kept("sent".into());
//! assert_eq!(claim.finish(receipt.clone(), Duration::from_secs(3600)).await?, Finish::Finished);
//!
//! // For an hour the rival is told what came out, instead of doing it again:
//! let rival = keeper.claim(key, None, &terms, Token::ZERO).await?;
//! assert!(matches!(rival, Attempt::Done(done) if done.value == receipt));
//! # Ok(()) }
//! ```
//!
//! Owners use the [`Keeper`]. Authors of a store implement [`store::ClaimStore`] with what [`engine`] offers,
//! and run the suite (feature `conformance`). On HTTP the layers are crates of their own: `tower-idempotency`, `tower-single-flight`,
//! `tower-lease-guard`, and `tower-stage`, which shows where each request stands.

mod clock;
mod code;
#[cfg(feature = "conformance")]
pub mod conformance;
mod detached;
pub mod engine;
mod entropy;
mod error;
mod fingerprint;
mod hex;
mod keeper;
mod key;
mod memory;
mod record;
mod refusal;
mod settings;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod token;
pub mod transaction;
mod wait;

#[cfg(feature = "http")]
pub mod http;

#[cfg(any(test, feature = "testing"))]
pub use clock::TokioClock;
pub use clock::{Clock, Moment, SystemClock};
pub use code::Code;
pub use detached::{Carry, CutShort, Detached, NotSpawned, Place, Running};
pub use entropy::{Entropy, OsEntropy};
pub use error::{ConfigError, StoreError};
pub use fingerprint::{Fingerprint, FingerprintBuilder};
pub use hex::InvalidHex;
pub use keeper::{
    Attempt, AttemptMany, Claim, Finishing, HandBack, Keeper, KeeperBuilder, Loss,
    NoPointOfNoReturn, Renewal, RunOn, Settled, Terms, TermsBuilder,
};
pub use key::{InvalidNamespace, Key, KeyBuilder, Namespace, Use};
pub use memory::{MemoryFenceStore, MemoryStats, MemoryStore, MemoryStoreBuilder};
pub use refusal::Refusal;
pub use settings::{LapsePolicy, Settings};
#[doc(inline)]
pub use store::{
    ClaimAdmin, ClaimMany, ClaimStore, DynClaimAdmin, DynClaimMany, DynClaimStore, DynFenceStore,
    FenceStore,
};
pub use token::{Nonce, Token};

/// Its examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
