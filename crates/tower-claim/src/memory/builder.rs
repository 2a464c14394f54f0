//! The store's settings.

use std::sync::Arc;

use super::MemoryStore;
use super::inner::Inner;
use super::room::Room;
use super::shard::RECORD_BYTES;
use crate::{Clock, ConfigError, SystemClock};

/// Shards at least, where nothing else is said.
const FEWEST_SHARDS: usize = 64;
/// Shards at most.
const MOST_SHARDS: usize = 1 << 16;
/// Records in one shard when the store is full, at most: growing the table of a shard touches twelve bytes
/// for each of them, which keeps the longest hold of a lock well below a millisecond.
const RECORDS_PER_SHARD: usize = 1 << 16;

/// Builds a [`MemoryStore`]. Made by [`MemoryStore::builder`].
#[derive(Debug, Clone)]
pub struct MemoryStoreBuilder {
    memory_limit: usize,
    max_records: usize,
    shards: Option<usize>,
    clock: Arc<dyn Clock>,
}

impl Default for MemoryStoreBuilder {
    fn default() -> Self {
        Self {
            memory_limit: 256 << 20,
            max_records: 1_000_000,
            shards: None,
            clock: Arc::new(SystemClock),
        }
    }
}

impl MemoryStoreBuilder {
    /// Bytes for records and bodies together. Default: 256 MiB.
    ///
    /// ```
    /// # use tower_claim::MemoryStore;
    /// let store = MemoryStore::builder().memory_limit(64 << 20).build()?;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Records at most. Default: 1,000,000.
    #[must_use]
    pub fn max_records(mut self, records: usize) -> Self {
        self.max_records = records;
        self
    }

    /// Locks that the records are spread over, rounded up to a power of two. Default: as many as keep a
    /// full shard below 65,536 records, 64 at least.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// The clock that judges every span. Default: [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    fn build_with(self, records: usize, shards: usize) -> MemoryStore {
        let room = Room::new(self.memory_limit, records);
        MemoryStore {
            inner: Arc::new(Inner::new(self.clock, room, shards)),
        }
    }

    /// The store with the default settings, which are in order.
    pub(super) fn build_default() -> MemoryStore {
        let settings = Self::default();
        let records = settings.max_records;
        settings.build_with(records, FEWEST_SHARDS)
    }

    /// The store.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a limit that not one record fits in, and for more than 65,536 shards, or none.
    pub fn build(self) -> Result<MemoryStore, ConfigError> {
        if self.memory_limit < RECORD_BYTES {
            return Err(ConfigError::new(
                "memory_limit",
                format!("not one record fits in: at least {RECORD_BYTES} bytes"),
            ));
        }
        if self.max_records == 0 {
            return Err(ConfigError::new("max_records", "at least 1"));
        }
        // What fits into the bytes counts as well: the records of a shard have 31 bits.
        let records = self.max_records.min(self.memory_limit / RECORD_BYTES);
        let shards = match self.shards {
            Some(shards) if !(1..=MOST_SHARDS).contains(&shards) => {
                return Err(ConfigError::new("shards", "1 to 65536"));
            }
            Some(shards) => shards.next_power_of_two(),
            None => (records / RECORDS_PER_SHARD)
                .next_power_of_two()
                .clamp(FEWEST_SHARDS, MOST_SHARDS),
        };
        Ok(self.build_with(records, shards))
    }
}
