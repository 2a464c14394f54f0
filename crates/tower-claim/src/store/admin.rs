//! The operator's side.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{ClaimStore, DynClaimStore, DynFenceStore, RecordView, Value};
use crate::{Key, StoreError, Token};

/// One page of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanPage {
    /// Records, in the engine's order.
    pub records: Vec<RecordView>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Key>,
}

/// What an operator found out about an unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolution {
    /// The work was done, with this result, kept this long.
    Done(Value, Duration),
    /// The work was not done: the key is free again.
    Absent,
}

/// Answer to a resolve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resolved {
    /// Done, under a raised token.
    Resolved {
        /// Above the expected one. Raise the guard's floor to it.
        token: Token,
    },
    /// No such record.
    Absent,
    /// The record is not unknown, or its token is another one.
    Conflict {
        /// The record's token.
        token: Token,
    },
}

/// Answer to a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Broken {
    /// The hold is over: free, or unknown for a `Hold` or marked claim.
    Broken {
        /// Above the expected one. Raise the guard's floor to it.
        token: Token,
    },
    /// No such record.
    Absent,
    /// The record is done, not held, or its token is another one.
    Conflict {
        /// The record's token.
        token: Token,
    },
}

/// Answer to a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purged {
    /// The result is gone and the key is free, once it need not stay taken any more.
    Purged {
        /// Above the expected one.
        token: Token,
    },
    /// There is no result: the key was never seen, is free, or the keep of its result has passed. Also the
    /// answer to a purge that is repeated after a lost reply.
    Absent,
    /// The record is held or unknown, or its token is another one.
    Conflict {
        /// The record's token.
        token: Token,
    },
}

/// The operator's side of a store. Every call that changes something compares the token the operator has
/// seen. Only [`purge`](Self::purge) touches done records.
///
/// A raised token alone does not reach the guard before the next owner writes: use [`break_and_fence`]
/// and [`resolve_and_fence`] where there is a guard. A purge needs no guard: whoever finished writes no more,
/// and where an operator told the result, the floor was raised then.
pub trait ClaimAdmin: ClaimStore {
    /// Lists records from `from` on (`None`: from the start), at most `limit`.
    fn scan(
        &self,
        from: Option<Key>,
        limit: usize,
    ) -> impl Future<Output = Result<ScanPage, StoreError>> + Send;

    /// Settles an unknown outcome.
    fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> impl Future<Output = Result<Resolved, StoreError>> + Send;

    /// Asks the owner to stop: it sees it at its next beat. `false` when there is no such hold.
    fn ask_revoke(
        &self,
        key: Key,
        expected: Token,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Ends a hold by force.
    fn break_claim(
        &self,
        key: Key,
        expected: Token,
    ) -> impl Future<Output = Result<Broken, StoreError>> + Send;

    /// Drops a result within its keep: its value is gone, the key is free again, and whoever claims it next
    /// does the work anew. For a result that is wrong, or that has to be erased. Where the layer that keeps it
    /// has an operator of its own, ask that one: it knows what else hangs on it.
    ///
    /// Nothing of it comes back: a late copy of the claim that made it is refused and a late finish is lost,
    /// as long as they may arrive. Of the record there stays what [`Resolution::Absent`] leaves: tokens,
    /// nonces, and until when the key stays taken by `min_hold` or cooling.
    ///
    /// The value is gone from what the store answers and keeps. Where an engine keeps older pages, rows, logs
    /// or backups, they go when the engine reuses, vacuums, compacts or expires them. An engine that
    /// [forgets answers](super::Capabilities) may forget a purge.
    fn purge(
        &self,
        key: Key,
        expected: Token,
    ) -> impl Future<Output = Result<Purged, StoreError>> + Send;
}

/// The object-safe twin of [`ClaimAdmin`]; every [`ClaimAdmin`] is one.
pub trait DynClaimAdmin: DynClaimStore {
    /// See [`ClaimAdmin::scan`].
    fn dyn_scan(
        &self,
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'_, Result<ScanPage, StoreError>>;
    /// See [`ClaimAdmin::resolve`].
    fn dyn_resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> BoxFuture<'_, Result<Resolved, StoreError>>;
    /// See [`ClaimAdmin::ask_revoke`].
    fn dyn_ask_revoke(&self, key: Key, expected: Token) -> BoxFuture<'_, Result<bool, StoreError>>;
    /// See [`ClaimAdmin::break_claim`].
    fn dyn_break_claim(
        &self,
        key: Key,
        expected: Token,
    ) -> BoxFuture<'_, Result<Broken, StoreError>>;
    /// See [`ClaimAdmin::purge`].
    fn dyn_purge(&self, key: Key, expected: Token) -> BoxFuture<'_, Result<Purged, StoreError>>;
}

impl<T: ClaimAdmin> DynClaimAdmin for T {
    fn dyn_scan(
        &self,
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'_, Result<ScanPage, StoreError>> {
        Box::pin(self.scan(from, limit))
    }
    fn dyn_resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> BoxFuture<'_, Result<Resolved, StoreError>> {
        Box::pin(self.resolve(key, expected, resolution))
    }
    fn dyn_ask_revoke(&self, key: Key, expected: Token) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.ask_revoke(key, expected))
    }
    fn dyn_break_claim(
        &self,
        key: Key,
        expected: Token,
    ) -> BoxFuture<'_, Result<Broken, StoreError>> {
        Box::pin(self.break_claim(key, expected))
    }
    fn dyn_purge(&self, key: Key, expected: Token) -> BoxFuture<'_, Result<Purged, StoreError>> {
        Box::pin(self.purge(key, expected))
    }
}

impl ClaimAdmin for dyn DynClaimAdmin {
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        self.dyn_scan(from, limit).await
    }
    async fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        self.dyn_resolve(key, expected, resolution).await
    }
    async fn ask_revoke(&self, key: Key, expected: Token) -> Result<bool, StoreError> {
        self.dyn_ask_revoke(key, expected).await
    }
    async fn break_claim(&self, key: Key, expected: Token) -> Result<Broken, StoreError> {
        self.dyn_break_claim(key, expected).await
    }
    async fn purge(&self, key: Key, expected: Token) -> Result<Purged, StoreError> {
        self.dyn_purge(key, expected).await
    }
}

impl<T: ClaimAdmin + ?Sized> ClaimAdmin for Arc<T> {
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        (**self).scan(from, limit).await
    }
    async fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        (**self).resolve(key, expected, resolution).await
    }
    async fn ask_revoke(&self, key: Key, expected: Token) -> Result<bool, StoreError> {
        (**self).ask_revoke(key, expected).await
    }
    async fn break_claim(&self, key: Key, expected: Token) -> Result<Broken, StoreError> {
        (**self).break_claim(key, expected).await
    }
    async fn purge(&self, key: Key, expected: Token) -> Result<Purged, StoreError> {
        (**self).purge(key, expected).await
    }
}

/// Breaks a hold and shuts its owner out at the guard.
///
/// # Errors
///
/// Those of the two stores. After an error of the guard the hold is broken and the floor is not raised:
/// call [`FenceStore::raise_floor`](super::FenceStore::raise_floor) again with the token of the record.
pub async fn break_and_fence(
    store: &dyn DynClaimAdmin,
    key: Key,
    expected: Token,
    guard: &dyn DynFenceStore,
    resource: &str,
) -> Result<Broken, StoreError> {
    let answer = store.dyn_break_claim(key, expected).await?;
    if let Broken::Broken { token } = answer {
        guard.dyn_raise_floor(resource, token).await?;
    }
    Ok(answer)
}

/// Settles an unknown outcome and shuts its owner out at the guard.
///
/// # Errors
///
/// As for [`break_and_fence`].
pub async fn resolve_and_fence(
    store: &dyn DynClaimAdmin,
    key: Key,
    expected: Token,
    resolution: Resolution,
    guard: &dyn DynFenceStore,
    resource: &str,
) -> Result<Resolved, StoreError> {
    let answer = store.dyn_resolve(key, expected, resolution).await?;
    if let Resolved::Resolved { token } = answer {
        guard.dyn_raise_floor(resource, token).await?;
    }
    Ok(answer)
}
