//! The claim: who does this piece of work, are they still at it, and what came out?
//!
//! A **claim** is the right to do one piece of work under one key: granted to one owner, for a lease, with
//! a fencing token. It ends by being *finished* with a result, *released* without one, or *lapsed*. This
//! crate has the words, the protocol as traits ([`ClaimStore`], [`FenceStore`]) and what every owner needs
//! around it.
//!
//! The layers over it are crates of their own: `tower-idempotency`, `tower-single-flight`,
//! `tower-lease-guard`.

mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod detached;
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
mod wait;

#[cfg(feature = "http")]
pub mod http;

#[cfg(any(test, feature = "testing"))]
pub use clock::TokioClock;
pub use clock::{Clock, Moment, SystemClock};
pub use detached::{Carry, CutShort, Detached, NotSpawned, Place, Running};
pub use entropy::{Entropy, OsEntropy};
pub use error::{ConfigError, StoreError};
pub use fingerprint::{Fingerprint, FingerprintBuilder};
pub use hex::InvalidHex;
pub use keeper::{
    Attempt, AttemptMany, Claim, HandBack, Keeper, KeeperBuilder, Loss, NoPointOfNoReturn, Renewal,
    RunOn, Terms, TermsBuilder,
};
pub use key::{InvalidNamespace, Key, KeyBuilder, Namespace, Use};
pub use memory::{MemoryFenceStore, MemoryStats, MemoryStore, MemoryStoreBuilder};
pub use refusal::{Code, Refusal};
pub use settings::{LapsePolicy, Settings};
#[doc(inline)]
pub use store::{
    ClaimAdmin, ClaimMany, ClaimStore, DynClaimAdmin, DynClaimMany, DynClaimStore, DynFenceStore,
    FenceStore,
};
pub use token::{Nonce, Token};
