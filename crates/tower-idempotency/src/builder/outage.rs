//! What a store that does not answer means.

use std::time::Duration;

use super::IdempotencyBuilder;
use crate::store_down::OnStoreDown;

impl IdempotencyBuilder {
    /// What a request with a key does when the store does not answer its claim. Default: [`OnStoreDown::Refuse`], the
    /// layer fails closed.
    ///
    /// Under [`OnStoreDown::RunUnprotected`] the handler runs as if the layer were not there: its
    /// [`IdempotentRun`](crate::IdempotentRun) [is not guarded](crate::IdempotentRun::is_guarded), its transaction is
    /// committed where it answers below 400, and it is cancelled when its caller hangs up. Its answer carries
    /// `Idempotency-Status: unprotected`, whatever [`tell_status`](Self::tell_status) says, and is counted
    /// ([`Counts::unprotected`](crate::Counts::unprotected)). A request that has met a run of its key already is
    /// refused as ever, and so is one whose quota or earlier window cannot be asked for. For work that may be done
    /// twice rather than not at all: [`build`](Self::build) refuses it with
    /// [`LapsePolicy::Hold`](tower_claim::LapsePolicy::Hold) and with a [reconcile hook](Self::reconcile).
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, OnStoreDown};
    ///
    /// let votes = IdempotencyLayer::builder(MemoryStore::new())
    ///     .on_store_down(OnStoreDown::RunUnprotected)
    ///     .build()?;
    /// assert_eq!(votes.counts().unprotected, 0);
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn on_store_down(mut self, on_store_down: OnStoreDown) -> Self {
        self.on_store_down = on_store_down;
        self
    }

    /// A circuit breaker before the store: after so many claims in a row that it did not answer, requests are refused at
    /// once (503 `store-unavailable`, or run unprotected under [`on_store_down`](Self::on_store_down)) for the `pause`,
    /// instead of waiting out their claims one by one; then one of them tries for all. What has begun is not held back:
    /// renewals, finishes and releases are sent as ever. Default: none, each request asks. Each process counts for itself.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .circuit_breaker(5, Duration::from_secs(1))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn circuit_breaker(mut self, failures: u32, pause: Duration) -> Self {
        self.circuit = Some((failures, pause));
        self
    }
}
