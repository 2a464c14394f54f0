//! Settings: what one tenant may have.

use super::IdempotencyBuilder;

impl IdempotencyBuilder {
    /// How many records one tenant, by its [scope](Self::scope), may have in the store: one for each key that runs
    /// or whose outcome is kept. A new key beyond that is refused (429 `quota-exceeded`, reason `records`, with
    /// `Retry-After`) before its handler runs; repeats of the keys that are there are answered as ever. So a flood of
    /// random keys degrades its own tenant only. Default: no quota.
    ///
    /// Counted in this process, in memory that does not grow with the records: over a store that several processes
    /// share, a tenant may have as many in each of them, and a process that starts begins at zero. A record counts
    /// until its keep has passed, and up to a sixteenth of it longer; a key that was given back, for a moment more.
    /// Claims that are on their way to the store count too. Beyond 100,000 tenants with records, tenants share
    /// accounts.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .scope(|req| req.headers.get("x-tenant")?.to_str().ok().map(str::to_owned))
    ///     .require_scope() // else who has none, or one that is no ASCII, shares the keys of all such
    ///     .max_records_per_tenant(10_000)
    ///     .max_bytes_per_tenant(16 << 20)
    ///     .build()?;
    /// assert_eq!(layer.tenant_usage(Some("acme")).records, 0);
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn max_records_per_tenant(mut self, records: u64) -> Self {
        self.quota.records = records;
        self
    }

    /// How many bytes the kept responses of one tenant may take in the store, and 256 for each record. At the
    /// limit a new key is refused (429 `quota-exceeded`, reason `bytes`). An outcome whose response does not fit any
    /// more is kept without it: a repeat is told 409 `response-not-kept`, and never runs again. Default: no quota.
    ///
    /// Counted as under [`max_records_per_tenant`](Self::max_records_per_tenant).
    pub fn max_bytes_per_tenant(mut self, bytes: u64) -> Self {
        self.quota.bytes = bytes;
        self
    }
}
