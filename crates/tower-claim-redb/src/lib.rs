//! The claim protocol in one file: embedded, durable, crash-safe.

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
