//! The claim protocol in one file: embedded, durable, crash-safe.
//!
//! One process owns the file. One thread writes, and commits together what waits; what changes nothing only
//! reads. What was answered survives a kill at any point; holds of a dead process lapse when the next one
//! opens the file.
//!
//! It does *not* serve several processes, nor a disk that lies about its flushes. Time over a reboot is the
//! wall clock's. [`RedbStore`] says all it promises.
//!
//! ```
//! use std::time::Duration;
//! use tower_claim::store::{ClaimRequest, Claimed};
//! use tower_claim::{ClaimStore, Key, Namespace, Nonce, OsEntropy, Settings, Token, Use};
//! use tower_claim_redb::RedbStore;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("claims.redb");
//! let store = RedbStore::open(path)?;
//!
//! let answer = store
//!     .claim(ClaimRequest {
//!         key: Key::builder(Use::Lease, &Namespace::default()).part("seat 14").build(),
//!         nonce: Nonce::draw(&OsEntropy),
//!         fingerprint: None,
//!         settings: &Settings::new(Duration::from_secs(10)),
//!         floor: Token::ZERO,
//!         not_after: store.now().saturating_add(Duration::from_secs(2)),
//!     })
//!     .await?;
//! // It is on the disk.
//! assert!(matches!(answer, Claimed::Granted(_)));
//! # Ok::<_, Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod book;
mod builder;
mod calls;
mod error;
mod fence;
mod file;
mod many;
mod marks;
mod meta;
mod store;
#[cfg(test)]
mod tests;
mod time;
mod writer;

pub use builder::RedbStoreBuilder;
pub use error::OpenError;
pub use fence::RedbFenceStore;
pub use store::RedbStore;

/// Its example runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
