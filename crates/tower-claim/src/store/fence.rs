//! The check at the resource.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::{Nonce, StoreError, Token};

/// Answer of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "write only when `Admitted`"]
pub enum Admission {
    /// The write may happen. Many writes under one token and nonce are admitted.
    Admitted,
    /// An older token than one already admitted, or not above the floor.
    Stale {
        /// The high-water mark.
        high: Token,
    },
    /// The token of the high-water mark with another nonce: the store gave one token twice.
    Collision {
        /// The high-water mark.
        high: Token,
    },
}

/// The guard's store: per resource, the highest token it has admitted and its nonce.
///
/// Accepted (token, nonce) never go back, under any timing. Keep the mark *with the data it protects*.
/// Marks are never lowered; pruned marks fold into a floor at least as high. A resource's name is any text; two
/// that differ in one byte, be it a zero, are two.
pub trait FenceStore: Debug + Send + Sync + 'static {
    /// Admits a write, and raises the mark to its token.
    fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> impl Future<Output = Result<Admission, StoreError>> + Send;

    /// Refuses every token at or below `floor` from now on; answers the mark that stands then. Never
    /// lowers it.
    fn raise_floor(
        &self,
        resource: &str,
        floor: Token,
    ) -> impl Future<Output = Result<Token, StoreError>> + Send;

    /// The high-water mark, [`Token::ZERO`] where nothing was admitted: the floor for a claim that heals.
    fn high_water(&self, resource: &str) -> impl Future<Output = Result<Token, StoreError>> + Send;
}

/// The object-safe twin of [`FenceStore`]; every [`FenceStore`] is one.
pub trait DynFenceStore: Debug + Send + Sync + 'static {
    /// See [`FenceStore::admit`].
    fn dyn_admit<'a>(
        &'a self,
        resource: &'a str,
        token: Token,
        nonce: Nonce,
    ) -> BoxFuture<'a, Result<Admission, StoreError>>;
    /// See [`FenceStore::raise_floor`].
    fn dyn_raise_floor<'a>(
        &'a self,
        resource: &'a str,
        floor: Token,
    ) -> BoxFuture<'a, Result<Token, StoreError>>;
    /// See [`FenceStore::high_water`].
    fn dyn_high_water<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Token, StoreError>>;
}

impl<T: FenceStore> DynFenceStore for T {
    fn dyn_admit<'a>(
        &'a self,
        resource: &'a str,
        token: Token,
        nonce: Nonce,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        Box::pin(self.admit(resource, token, nonce))
    }
    fn dyn_raise_floor<'a>(
        &'a self,
        resource: &'a str,
        floor: Token,
    ) -> BoxFuture<'a, Result<Token, StoreError>> {
        Box::pin(self.raise_floor(resource, floor))
    }
    fn dyn_high_water<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Token, StoreError>> {
        Box::pin(self.high_water(resource))
    }
}

impl FenceStore for dyn DynFenceStore {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        self.dyn_admit(resource, token, nonce).await
    }
    async fn raise_floor(&self, resource: &str, floor: Token) -> Result<Token, StoreError> {
        self.dyn_raise_floor(resource, floor).await
    }
    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        self.dyn_high_water(resource).await
    }
}

impl<T: FenceStore + ?Sized> FenceStore for Arc<T> {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        (**self).admit(resource, token, nonce).await
    }
    async fn raise_floor(&self, resource: &str, floor: Token) -> Result<Token, StoreError> {
        (**self).raise_floor(resource, floor).await
    }
    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        (**self).high_water(resource).await
    }
}
