//! The protocol for several keys at once.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{ClaimStore, Claimed, DynClaimStore, Grant, Release, ReleaseRequest, StoreTime};
use crate::{Key, Nonce, Settings, StoreError, Token};

/// A claim of several keys.
#[derive(Debug, Clone, Copy)]
pub struct ClaimManyRequest<'a> {
    /// The keys: sorted, without repeats, at least one.
    pub keys: &'a [Key],
    /// One nonce for all.
    pub nonce: Nonce,
    /// Written into every record.
    pub settings: &'a Settings,
    /// The grant's token must be above this.
    pub floor: Token,
    /// Past this instant of the store's clock the call changes nothing.
    pub not_after: StoreTime,
}

impl ClaimManyRequest<'_> {
    /// The first key, in a request that a store may take.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`] for keys that are not sorted, repeat, or are none.
    pub fn first_key(&self) -> Result<Key, StoreError> {
        let sorted = self.keys.windows(2).all(|pair| pair[0] < pair[1]);
        let first = self.keys.first().filter(|_| sorted);
        first.copied().ok_or(StoreError::Unsupported(
            "a claim of several keys that are not sorted, repeat, or are none",
        ))
    }
}

/// Answer to a claim of several keys.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimedMany {
    /// All keys are held, under one token above all of theirs.
    Granted(Grant),
    /// None was taken: this key stands in the way.
    Refused {
        /// The key.
        key: Key,
        /// What a claim of it alone would have been answered. Never [`Claimed::Granted`].
        by: Claimed,
    },
}

/// Claims over several keys: all or nothing in one step, never emulated by claim and roll back.
///
/// See [`Capabilities::multi_key`](super::Capabilities::multi_key) for what the engine can take.
pub trait ClaimMany: ClaimStore {
    /// Claims all keys, or none. When this nonce holds them all already, answers `Refused` by
    /// [`Claimed::Mine`].
    fn claim_many(
        &self,
        request: ClaimManyRequest<'_>,
    ) -> impl Future<Output = Result<ClaimedMany, StoreError>> + Send;

    /// Releases each; answers in order. Not atomic: a release needs no company.
    fn release_many(
        &self,
        requests: &[ReleaseRequest],
    ) -> impl Future<Output = Result<Vec<Release>, StoreError>> + Send;
}

/// The object-safe twin of [`ClaimMany`]; every [`ClaimMany`] is one.
pub trait DynClaimMany: DynClaimStore {
    /// See [`ClaimMany::claim_many`].
    fn dyn_claim_many<'a>(
        &'a self,
        request: ClaimManyRequest<'a>,
    ) -> BoxFuture<'a, Result<ClaimedMany, StoreError>>;
    /// See [`ClaimMany::release_many`].
    fn dyn_release_many<'a>(
        &'a self,
        requests: &'a [ReleaseRequest],
    ) -> BoxFuture<'a, Result<Vec<Release>, StoreError>>;
    /// The same store, seen as one for single keys.
    fn as_claim_store(self: Arc<Self>) -> Arc<dyn DynClaimStore>;
}

impl<T: ClaimMany> DynClaimMany for T {
    fn dyn_claim_many<'a>(
        &'a self,
        request: ClaimManyRequest<'a>,
    ) -> BoxFuture<'a, Result<ClaimedMany, StoreError>> {
        Box::pin(self.claim_many(request))
    }
    fn dyn_release_many<'a>(
        &'a self,
        requests: &'a [ReleaseRequest],
    ) -> BoxFuture<'a, Result<Vec<Release>, StoreError>> {
        Box::pin(self.release_many(requests))
    }
    fn as_claim_store(self: Arc<Self>) -> Arc<dyn DynClaimStore> {
        self
    }
}

impl ClaimMany for dyn DynClaimMany {
    async fn claim_many(&self, request: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        self.dyn_claim_many(request).await
    }
    async fn release_many(&self, requests: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        self.dyn_release_many(requests).await
    }
}

impl<T: ClaimMany + ?Sized> ClaimMany for Arc<T> {
    async fn claim_many(&self, request: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        (**self).claim_many(request).await
    }
    async fn release_many(&self, requests: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        (**self).release_many(requests).await
    }
}
