//! What a run that was lost means.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tower_claim::{ClaimAdmin, LapsePolicy};

use super::IdempotencyBuilder;
use crate::reconcile::{LapsedRun, ReconcileBy, Reconciled};

impl IdempotencyBuilder {
    /// What a run that lapsed (a crash, a pause) means. Default: [`LapsePolicy::TakeOver`], a repeat runs
    /// again: for handlers whose effects are one transaction, or can be repeated. Under
    /// [`LapsePolicy::Hold`] the outcome is unknown, and a repeat is told so; under
    /// [`reconcile`](Self::reconcile) a hook finds out. The policy is a layer's, so a route with another one has a layer
    /// value of its own.
    ///
    /// ```
    /// use tower_claim::{LapsePolicy, MemoryStore};
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let payments = IdempotencyLayer::builder(MemoryStore::new())
    ///     .on_lapse(LapsePolicy::Hold)
    ///     .build()?;
    /// # let _ = payments;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn on_lapse(mut self, policy: LapsePolicy) -> Self {
        self.on_lapse = policy;
        self
    }

    /// Asks a hook what a lapsed run came to, before anything runs again: also one that was lost behind its
    /// [point of no return](crate::IdempotentRun::point_of_no_return). Default: none; replaces
    /// [`on_lapse`](Self::on_lapse).
    ///
    /// The hook runs when the next repeat comes, in a task of its own, one at a time for each key, under a claim whose
    /// [token](crate::IdempotentRun::token) is above that of the lapsed run. It [says](Reconciled) that the handler is to
    /// run, or what the answer is, or that nobody can tell. A panic in it is
    /// [not yet](Reconciled::NotYet). When its process dies, the next repeat asks again, after a lease. It should not
    /// change anything but high-water marks: it may be asked more than once.
    ///
    /// It has no timeout of its own. While it is asked it keeps a place of [`max_in_flight`](Self::max_in_flight), as
    /// long as its claim stands: after [`max_hold`](Self::max_hold) at the latest it is dropped, and the next repeat
    /// asks again.
    ///
    /// Runs begin behind a lapsed one for at least [`unfinished_keep`](Self::unfinished_keep) after the hook was first
    /// asked. After that comes a time in which repeats are told what their work came to, or `outcome-unknown`, and
    /// nothing runs: what a run leaves behind must not outlast what is known of the lapsed one.
    ///
    /// `store` is the store of the layer, once more: to lead on from an unknown outcome needs an operator's call. Like
    /// [`LapsePolicy::Hold`] it is refused on an engine that may forget what it answered.
    ///
    /// Keep the hook while records are kept. A layer without one answers `outcome-unknown` where one was to be asked.
    ///
    /// ```
    /// use http::Response;
    /// use std::time::Duration;
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, Reconciled};
    ///
    /// # enum Books { Booked(String), Nothing, Down }
    /// # async fn look_up(_: &str) -> Books { Books::Nothing }
    /// let store = MemoryStore::new();
    /// let layer = IdempotencyLayer::builder(store.clone())
    ///     .reconcile(store, |lapsed| async move {
    ///         // The bank was sent the key along with the payment.
    ///         let key = lapsed.run().key().as_client_text().unwrap_or_default();
    ///         match look_up(key).await {
    ///             Books::Booked(receipt) => Reconciled::Done(Response::new(receipt.into())),
    ///             Books::Nothing => Reconciled::RunAgain,
    ///             Books::Down => Reconciled::NotYet(Duration::from_secs(10)),
    ///         }
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn reconcile<F>(
        mut self,
        store: impl ClaimAdmin,
        hook: impl Fn(LapsedRun) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Reconciled> + Send + 'static,
    {
        self.reconcile = Some(ReconcileBy::new(Arc::new(store), hook));
        self
    }

    /// How long after a lapse an unfinished record binds its fingerprint, and an unknown outcome stays
    /// unknown. Default: 24 hours.
    pub fn unfinished_keep(mut self, keep: Duration) -> Self {
        self.unfinished_keep = keep;
        self
    }

    /// Allows [`LapsePolicy::Hold`], [`reconcile`](Self::reconcile) and the point of no return on an engine that may
    /// forget what it answered. After a failover of such an engine work may run twice. Default: not allowed.
    pub fn trust_forgetful_store(mut self) -> Self {
        self.trust_forgetful_store = true;
        self
    }
}
