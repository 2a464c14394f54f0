//! The protocol for one key.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{
    Capabilities, Claimed, DynClaimAdmin, DynClaimMany, Finish, Marked, RecordView, Release,
    Renewed, StoreTime, Value, Watched,
};
use crate::{Fingerprint, Key, Nonce, Settings, StoreError, Token};

/// Who holds what: the key, and the nonce and token of the grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The key.
    pub key: Key,
    /// The nonce that was granted it.
    pub nonce: Nonce,
    /// The token of that grant.
    pub token: Token,
}

/// A claim of one key.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest<'a> {
    /// The key.
    pub key: Key,
    /// Drawn for this claim. Repeat the call with the same one when its answer is lost.
    pub nonce: Nonce,
    /// What must not change under the key.
    pub fingerprint: Option<Fingerprint>,
    /// Written into the record when granted.
    pub settings: &'a Settings,
    /// The grant's token must be above this: what a guard has seen.
    pub floor: Token,
    /// Past this instant of the store's clock the call changes nothing. **The same in every copy of one
    /// claim**: the store remembers the nonce until then, and a copy that may arrive later would be granted
    /// a second time.
    pub not_after: StoreTime,
}

/// One beat of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Whose hold.
    pub owner: Owner,
    /// The work's progress, kept for the next owner. Engines keep 2^63 − 1 at most.
    pub progress: u64,
}

/// A finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishRequest {
    /// Whose work.
    pub owner: Owner,
    /// Its result.
    pub value: Value,
    /// How long the result is kept.
    pub keep: Duration,
}

/// A release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The key.
    pub key: Key,
    /// The nonce that claimed it.
    pub nonce: Nonce,
    /// The token of its grant, where the caller knows it; by nonce alone otherwise.
    pub token: Option<Token>,
    /// The `not_after` of the claim sent with this nonce: until then it is remembered.
    pub not_after: StoreTime,
}

/// The claim protocol for one key. **One implementation per engine; the suite in
/// `conformance` checks every law.**
///
/// Every call may be repeated after a lost reply, and may arrive late: it has at most the effect of one.
/// Every call ends by itself within the engine's call timeout, [`watch`](ClaimStore::watch) excepted.
///
/// # Cancellation
///
/// Any of these futures may be dropped at any await. The call may then be applied all the same.
///
/// For `Arc<dyn …>` name the twin, [`DynClaimStore`].
pub trait ClaimStore: Debug + Send + Sync + 'static {
    /// What the engine can promise.
    fn capabilities(&self) -> Capabilities;

    /// The engine's time as well as it is known here, without asking: from the connect and the last reply.
    fn now(&self) -> StoreTime;

    /// Claims a key. Granted when it is free and its "not before" has passed; done and past its keep; or
    /// lapsed and cooled under `TakeOver`, unmarked, with the same fingerprint.
    fn claim(
        &self,
        request: ClaimRequest<'_>,
    ) -> impl Future<Output = Result<Claimed, StoreError>> + Send;

    /// Renews holds, many in one trip; answers in the order of `beats`. Succeeds for the same nonce and
    /// token, held and not lapsed. Never shortens a lease. An error means that no beat is known to have
    /// been applied.
    fn renew(
        &self,
        beats: &[Beat],
    ) -> impl Future<Output = Result<Vec<Renewed>, StoreError>> + Send;

    /// Writes the point of no return into the record. Same condition as a renewal; a trip of its own.
    fn mark(&self, owner: Owner) -> impl Future<Output = Result<Marked, StoreError>> + Send;

    /// Finishes the work. **The token decides, not time**: succeeds for the same nonce and token on a held
    /// record even when it has lapsed, on an unknown one reached by lapse and not yet resolved or broken,
    /// and again on a done one.
    fn finish(
        &self,
        request: FinishRequest,
    ) -> impl Future<Output = Result<Finish, StoreError>> + Send;

    /// Gives the key back without a result. Never touches a done record; a marked one becomes unknown.
    fn release(
        &self,
        request: ReleaseRequest,
    ) -> impl Future<Output = Result<Release, StoreError>> + Send;

    /// Waits until the hold with this token is over: finished, released, lapsed or superseded. A lost
    /// wake-up costs at most one poll step. Bound it with a timeout of your own.
    fn watch(
        &self,
        key: Key,
        token: Token,
    ) -> impl Future<Output = Result<Watched, StoreError>> + Send;

    /// The record, if there is one.
    fn peek(&self, key: Key)
    -> impl Future<Output = Result<Option<RecordView>, StoreError>> + Send;

    /// A store for the keeper, called on its runtime: with connections made there, where the engine has
    /// any. See [`Capabilities::keeper`].
    fn keeper_store(
        &self,
    ) -> impl Future<Output = Result<Arc<dyn DynClaimStore>, StoreError>> + Send;
}

/// The object-safe twin of [`ClaimStore`]; every [`ClaimStore`] is one.
pub trait DynClaimStore: Debug + Send + Sync + 'static {
    /// See [`ClaimStore::capabilities`].
    fn dyn_capabilities(&self) -> Capabilities;
    /// See [`ClaimStore::now`].
    fn dyn_now(&self) -> StoreTime;
    /// See [`ClaimStore::claim`].
    fn dyn_claim<'a>(
        &'a self,
        request: ClaimRequest<'a>,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>>;
    /// See [`ClaimStore::renew`].
    fn dyn_renew<'a>(
        &'a self,
        beats: &'a [Beat],
    ) -> BoxFuture<'a, Result<Vec<Renewed>, StoreError>>;
    /// See [`ClaimStore::mark`].
    fn dyn_mark(&self, owner: Owner) -> BoxFuture<'_, Result<Marked, StoreError>>;
    /// See [`ClaimStore::finish`].
    fn dyn_finish(&self, request: FinishRequest) -> BoxFuture<'_, Result<Finish, StoreError>>;
    /// See [`ClaimStore::release`].
    fn dyn_release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Release, StoreError>>;
    /// See [`ClaimStore::watch`].
    fn dyn_watch(&self, key: Key, token: Token) -> BoxFuture<'_, Result<Watched, StoreError>>;
    /// See [`ClaimStore::peek`].
    fn dyn_peek(&self, key: Key) -> BoxFuture<'_, Result<Option<RecordView>, StoreError>>;
    /// See [`ClaimStore::keeper_store`].
    fn dyn_keeper_store(&self) -> BoxFuture<'_, Result<Arc<dyn DynClaimStore>, StoreError>>;
}

impl<T: ClaimStore> DynClaimStore for T {
    fn dyn_capabilities(&self) -> Capabilities {
        self.capabilities()
    }
    fn dyn_now(&self) -> StoreTime {
        self.now()
    }
    fn dyn_claim<'a>(
        &'a self,
        request: ClaimRequest<'a>,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(self.claim(request))
    }
    fn dyn_renew<'a>(
        &'a self,
        beats: &'a [Beat],
    ) -> BoxFuture<'a, Result<Vec<Renewed>, StoreError>> {
        Box::pin(self.renew(beats))
    }
    fn dyn_mark(&self, owner: Owner) -> BoxFuture<'_, Result<Marked, StoreError>> {
        Box::pin(self.mark(owner))
    }
    fn dyn_finish(&self, request: FinishRequest) -> BoxFuture<'_, Result<Finish, StoreError>> {
        Box::pin(self.finish(request))
    }
    fn dyn_release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Release, StoreError>> {
        Box::pin(self.release(request))
    }
    fn dyn_watch(&self, key: Key, token: Token) -> BoxFuture<'_, Result<Watched, StoreError>> {
        Box::pin(self.watch(key, token))
    }
    fn dyn_peek(&self, key: Key) -> BoxFuture<'_, Result<Option<RecordView>, StoreError>> {
        Box::pin(self.peek(key))
    }
    fn dyn_keeper_store(&self) -> BoxFuture<'_, Result<Arc<dyn DynClaimStore>, StoreError>> {
        Box::pin(self.keeper_store())
    }
}

/// A twin behind a pointer is a [`ClaimStore`] again.
macro_rules! claim_store_by_twin {
    ($twin:ty) => {
        impl ClaimStore for $twin {
            fn capabilities(&self) -> Capabilities {
                self.dyn_capabilities()
            }
            fn now(&self) -> StoreTime {
                self.dyn_now()
            }
            async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
                self.dyn_claim(request).await
            }
            async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
                self.dyn_renew(beats).await
            }
            async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
                self.dyn_mark(owner).await
            }
            async fn finish(&self, request: FinishRequest) -> Result<Finish, StoreError> {
                self.dyn_finish(request).await
            }
            async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
                self.dyn_release(request).await
            }
            async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
                self.dyn_watch(key, token).await
            }
            async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
                self.dyn_peek(key).await
            }
            async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
                self.dyn_keeper_store().await
            }
        }
    };
}

claim_store_by_twin!(dyn DynClaimStore);
claim_store_by_twin!(dyn DynClaimMany);
claim_store_by_twin!(dyn DynClaimAdmin);

impl<T: ClaimStore + ?Sized> ClaimStore for Arc<T> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
    fn now(&self) -> StoreTime {
        (**self).now()
    }
    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        (**self).claim(request).await
    }
    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        (**self).renew(beats).await
    }
    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        (**self).mark(owner).await
    }
    async fn finish(&self, request: FinishRequest) -> Result<Finish, StoreError> {
        (**self).finish(request).await
    }
    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        (**self).release(request).await
    }
    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        (**self).watch(key, token).await
    }
    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        (**self).peek(key).await
    }
    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        (**self).keeper_store().await
    }
}
