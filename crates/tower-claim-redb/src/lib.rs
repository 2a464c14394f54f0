//! The claim protocol in one file: embedded, durable, crash-safe.
//!
//! One process owns the file. One thread writes, and commits together what waits; what changes nothing only
//! reads. What was answered survives a kill at any point; holds of a dead process lapse when the next one
//! opens the file. *Not*: several processes, nor a disk that lies about its flushes.

mod book;
mod builder;
mod error;
mod fence;
mod file;
mod many;
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
