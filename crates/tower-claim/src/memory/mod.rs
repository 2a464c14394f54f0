//! The claim protocol in this process's memory, and a guard beside it.

mod builder;
mod fence;
mod inner;
mod lock;
mod many;
mod room;
mod shard;
mod slab;
mod store;
#[cfg(test)]
mod tests;
mod watch;
mod wheel;

use std::fmt;
use std::sync::Arc;

pub use builder::MemoryStoreBuilder;
pub use fence::MemoryFenceStore;
use inner::Inner;

#[cfg(doc)]
use crate::store::{StoreTime, Value};
#[cfg(doc)]
use crate::{ClaimStore, StoreError, SystemClock};

/// Keeps claims in the memory of this process. Clones are one store.
///
/// | Promise | |
/// |---|---|
/// | forgets what it answered | never, while the process lives |
/// | outlives the process | no |
/// | several keys at once | atomic, any keys |
/// | heartbeats | independent of the user's runtime |
/// | smallest span of time | 1 µs |
/// | clock | this process's |
/// | weakened by a flush | nothing |
/// | weakened by a failover | nothing |
/// | weakened by a moved clock | nothing |
/// | weakened by a restart | nothing |
///
/// It lives and dies with its process: there is nothing to flush, to fail over or to restart alone. The
/// clock is the [`Clock`](crate::Clock) it was built with, [`SystemClock`] by default, which no step of
/// the machine's time moves.
///
/// # Bounds
///
/// Bounded in bytes ([`memory_limit`](MemoryStoreBuilder::memory_limit), 256 MiB) and records
/// ([`max_records`](MemoryStoreBuilder::max_records), 1,000,000). A claim reserves the room of its record,
/// so that a finished outcome never lacks it: where there is no room for the body as well, the outcome is
/// kept as a [tombstone](Value::Tombstone). A full store answers new claims with [`StoreError::Full`]; a
/// live or finished record is never dropped before its time. Bodies are copied in, so that none pins a
/// larger buffer.
///
/// Records that ended by time go as later operations pass by: each looks at a few that are due. There is no
/// background task, no full scan and no pause. A key that was released stays until the `not_after` of its
/// claim has passed, and no longer: a claim sent with [`StoreTime::NEVER`] is remembered for ever.
///
/// # Cancellation
///
/// Every call does its work when it is first polled, [`watch`](ClaimStore::watch) excepted; a dropped watch
/// leaves nothing behind.
///
/// ```
/// use std::time::Duration;
/// use tower_claim::store::{ClaimRequest, Claimed, StoreTime};
/// use tower_claim::{ClaimStore, Key, MemoryStore, Namespace, Nonce, OsEntropy, Settings, Token, Use};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::new();
/// let settings = Settings::new(Duration::from_secs(10));
/// let ask = |nonce| ClaimRequest {
///     key: Key::builder(Use::Lease, &Namespace::default()).part("seat 14").build(),
///     nonce,
///     fingerprint: None,
///     settings: &settings,
///     floor: Token::ZERO,
///     not_after: store.now().saturating_add(Duration::from_secs(2)),
/// };
/// let (first, second) = (Nonce::draw(&OsEntropy), Nonce::draw(&OsEntropy));
/// assert!(matches!(store.claim(ask(first)).await?, Claimed::Granted(_)));
/// assert!(matches!(store.claim(ask(second)).await?, Claimed::Busy(_)));
/// # Ok::<_, tower_claim::StoreError>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

/// What a [`MemoryStore`] keeps just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Records, with those that ended by time and are not yet dropped.
    pub records: usize,
    /// Bytes of records and bodies.
    pub bytes: usize,
    /// Keys that somebody watches.
    pub watched: usize,
}

impl MemoryStore {
    /// A store with 256 MiB for at most 1,000,000 records, on the system's clock.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a store is shared, never a default"
    )]
    pub fn new() -> Self {
        MemoryStoreBuilder::build_default()
    }

    /// A store with settings of its own.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::default()
    }

    /// What it keeps just now.
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            records: self.inner.room.records(),
            bytes: self.inner.room.bytes(),
            watched: self.inner.watched(),
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("records", &self.inner.room.records())
            .field("bytes", &self.inner.room.bytes())
            .finish_non_exhaustive()
    }
}
