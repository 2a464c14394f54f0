//! A store that fails on command.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::fault::Verdict;
use super::{Faults, Operation};
use crate::store::{
    Beat, Broken, Capabilities, ClaimManyRequest, ClaimRequest, Claimed, ClaimedMany, Finish,
    FinishRequest, Marked, Owner, Purged, RecordView, Release, ReleaseRequest, Renewed, Resolution,
    Resolved, ScanPage, StoreTime, Watched,
};
use crate::{
    ClaimAdmin, ClaimMany, ClaimStore, Clock, DynClaimStore, Key, StoreError, SystemClock, Token,
};

/// Any store, with faults before it: refuses, delays, loses replies, delivers twice, and counts. Its
/// [`Faults`] handle switches it while it runs.
///
/// It claims several keys and serves operators when `S` does.
///
/// ```
/// # use tower_claim::{ClaimStore, StoreError, Key};
/// use tower_claim::testing::{Fault, FaultStore, Operation};
///
/// # async fn with(store: impl ClaimStore, key: Key) {
/// let store = FaultStore::new(store);
/// let faults = store.faults();
/// faults.set(Fault::Down);
/// assert!(matches!(store.peek(key).await, Err(StoreError::Unavailable(_))));
/// assert_eq!(faults.calls().of(Operation::Peek), 1);
/// # }
/// ```
#[derive(Debug)]
pub struct FaultStore<S> {
    inner: Arc<S>,
    clock: Arc<dyn Clock>,
    faults: Faults,
    promises: Option<Capabilities>,
}

impl<S> Clone for FaultStore<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            clock: self.clock.clone(),
            faults: self.faults.clone(),
            promises: self.promises,
        }
    }
}

impl<S> FaultStore<S> {
    /// A store without faults yet. Delays pass on the [`SystemClock`].
    pub fn new(inner: S) -> Self {
        Self::with_clock(inner, Arc::new(SystemClock))
    }

    /// As [`FaultStore::new`], with delays that pass on this clock.
    pub fn with_clock(inner: S, clock: Arc<dyn Clock>) -> Self {
        Self {
            inner: Arc::new(inner),
            clock,
            faults: Faults::default(),
            promises: None,
        }
    }

    /// The same store, promising what another engine does: to see what a layer refuses there. Default: what
    /// the store behind promises.
    #[must_use]
    pub fn promising(mut self, capabilities: Capabilities) -> Self {
        self.promises = Some(capabilities);
        self
    }

    /// The handle that switches the faults and counts the calls.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// The store behind, where no fault reaches.
    pub fn inner(&self) -> &Arc<S> {
        &self.inner
    }

    async fn deliver<T, F>(
        &self,
        operation: Operation,
        call: impl Fn() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        match self.faults.next(operation) {
            Verdict::Pass => call().await,
            Verdict::Refuse => Err(StoreError::unavailable("down on command")),
            Verdict::Delay(by) => {
                self.wait(by).await;
                call().await
            }
            Verdict::LoseReply => {
                // A watch applies nothing, and may never end.
                if operation != Operation::Watch {
                    call().await?;
                }
                Err(StoreError::ambiguous("reply lost on command"))
            }
            Verdict::Repeat => {
                let first = call().await;
                let _late_copy = call().await;
                first
            }
        }
    }

    async fn wait(&self, by: Duration) {
        self.clock.sleep_until(self.clock.now() + by).await;
    }
}

impl<S: ClaimStore> ClaimStore for FaultStore<S> {
    fn capabilities(&self) -> Capabilities {
        self.promises.unwrap_or_else(|| self.inner.capabilities())
    }

    fn now(&self) -> StoreTime {
        self.inner.now()
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        self.deliver(Operation::Claim, || self.inner.claim(request))
            .await
    }

    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        self.deliver(Operation::Renew, || self.inner.renew(beats))
            .await
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        self.deliver(Operation::Mark, || self.inner.mark(owner))
            .await
    }

    async fn finish(&self, request: FinishRequest) -> Result<Finish, StoreError> {
        self.deliver(Operation::Finish, || self.inner.finish(request.clone()))
            .await
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        self.deliver(Operation::Release, || self.inner.release(request))
            .await
    }

    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        self.deliver(Operation::Watch, || self.inner.watch(key, token))
            .await
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        self.deliver(Operation::Peek, || self.inner.peek(key)).await
    }

    /// The keeper's connection has the same faults.
    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        let inner = self.inner.keeper_store().await?;
        Ok(Arc::new(FaultStore {
            inner: Arc::new(inner),
            clock: self.clock.clone(),
            faults: self.faults.clone(),
            promises: self.promises,
        }))
    }
}

impl<S: ClaimMany> ClaimMany for FaultStore<S> {
    async fn claim_many(&self, request: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        self.deliver(Operation::ClaimMany, || self.inner.claim_many(request))
            .await
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        self.deliver(Operation::ReleaseMany, || self.inner.release_many(requests))
            .await
    }
}

impl<S: ClaimAdmin> ClaimAdmin for FaultStore<S> {
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        self.deliver(Operation::Scan, || self.inner.scan(from, limit))
            .await
    }

    async fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        self.deliver(Operation::Resolve, || {
            self.inner.resolve(key, expected, resolution.clone())
        })
        .await
    }

    async fn ask_revoke(&self, key: Key, expected: Token) -> Result<bool, StoreError> {
        self.deliver(Operation::AskRevoke, || {
            self.inner.ask_revoke(key, expected)
        })
        .await
    }

    async fn break_claim(&self, key: Key, expected: Token) -> Result<Broken, StoreError> {
        self.deliver(Operation::BreakClaim, || {
            self.inner.break_claim(key, expected)
        })
        .await
    }

    async fn purge(&self, key: Key, expected: Token) -> Result<Purged, StoreError> {
        self.deliver(Operation::Purge, || self.inner.purge(key, expected))
            .await
    }
}
