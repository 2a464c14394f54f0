//! The protocol's traits over the statements.

use std::sync::Arc;

use tokio_postgres::Row;
use tower_claim::store::{
    Admission, Beat, Broken, Capabilities, ClaimAdmin, ClaimMany, ClaimManyRequest, ClaimRequest,
    ClaimStore, Claimed, ClaimedMany, DynClaimStore, FenceStore, Finish, FinishRequest,
    KeeperConnection, Marked, Owner, Purged, RecordView, Release, ReleaseRequest, Renewed,
    Resolution, Resolved, ScanPage, StoreTime, Watched,
};
use tower_claim::{Key, Nonce, StoreError, Token};

use crate::PostgresStore;
use crate::calls::{Calls, only};
use crate::error::of_mark;
use crate::listener::Listener;
use crate::statement::{Call, answer};
use crate::store::Inner;

/// Connections of a keeper for what may wait for a row: releases, finishes.
const RELEASING: usize = 2;
/// And for beats, which are batched and wait for no row: strangers who lock a few rows must not stop them.
const BEATING: usize = 1;
/// Records on one page of a scan, at most.
const PAGE: usize = 1_000;

impl ClaimStore for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities
    }

    fn now(&self) -> StoreTime {
        self.inner().clock.now()
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        let call = self.inner().statements.claim(&request);
        self.ask(&request.key, call, answer::claimed).await
    }

    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        let keys = beats.iter().map(|beat| beat.owner.key).collect();
        let call = self.inner().statements.renew(beats);
        self.ask_each(&self.inner.beats, keys, call, answer::renewed)
            .await
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        let call = self.inner().statements.mark(owner);
        self.ask(&owner.key, call, answer::marked).await
    }

    async fn finish(&self, request: FinishRequest) -> Result<Finish, StoreError> {
        let call = self.inner().statements.finish(&request);
        self.ask(&request.owner.key, call, answer::finished).await
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        let call = self.inner().statements.release(&request);
        self.ask(&request.key, call, answer::released).await
    }

    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        let Inner { listener, poll, .. } = self.inner();
        listener.begin();
        let look = || {
            let call = self.inner().statements.look(key, token, listener.listens());
            async move { self.ask(&key, call, answer::watching).await }
        };
        let now = || self.now();
        listener.bells().watch(key, token, *poll, now, look).await
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        let call = self.inner().statements.scan(Some(key), Some(key), 1);
        let rows = self.send(&call, Some(&key)).await?;
        rows.first().map(answer::viewed).transpose()
    }

    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        let inner = self.inner();
        let Some(link) = &inner.link else {
            return Ok(Arc::new(self.clone()));
        };
        let over = |connections| {
            let pool = link.pool(connections).map_err(StoreError::unavailable)?;
            Ok::<_, StoreError>(Calls {
                pool,
                ..inner.calls.clone()
            })
        };
        let (calls, beats) = (over(RELEASING)?, over(BEATING)?);
        // The first beat should not pay for the connection.
        drop(beats.client().await?);
        Ok(Arc::new(Self::from_inner(Arc::new(Inner {
            calls,
            beats,
            link: inner.link.clone(),
            statements: inner.statements.clone(),
            clock: Arc::clone(&inner.clock),
            poll: inner.poll,
            // A keeper waits for nobody.
            listener: Arc::new(Listener::new(None)),
            capabilities: inner.capabilities.with_keeper(KeeperConnection::Own),
            _purger: None,
        }))))
    }
}

impl ClaimMany for PostgresStore {
    async fn claim_many(&self, request: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        let first = request.first_key()?;
        let call = self.inner().statements.claim_many(&request);
        self.ask(&first, call, answer::claimed_many).await
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        let keys = requests.iter().map(|request| request.key).collect();
        let call = self.inner().statements.release_many(requests);
        self.ask_each(&self.inner.calls, keys, call, answer::released)
            .await
    }
}

impl ClaimAdmin for PostgresStore {
    /// In the order of keys.
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        let limit = limit.clamp(1, PAGE);
        // One more than asked for: it says where the next page begins.
        let call = self.inner().statements.scan(from, None, limit + 1);
        let rows = self.send(&call, from.as_ref()).await?;
        let mut records = rows
            .iter()
            .map(answer::viewed)
            .collect::<Result<Vec<_>, _>>()?;
        let next = records.get(limit).map(|record| record.key);
        records.truncate(limit);
        Ok(ScanPage { records, next })
    }

    async fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        let call = self.inner().statements.resolve(key, expected, &resolution);
        self.ask(&key, call, answer::resolved).await
    }

    async fn ask_revoke(&self, key: Key, expected: Token) -> Result<bool, StoreError> {
        let call = self.inner().statements.ask_revoke(key, expected);
        self.ask(&key, call, answer::asked).await
    }

    async fn break_claim(&self, key: Key, expected: Token) -> Result<Broken, StoreError> {
        let call = self.inner().statements.break_claim(key, expected);
        self.ask(&key, call, answer::broken).await
    }

    async fn purge(&self, key: Key, expected: Token) -> Result<Purged, StoreError> {
        let call = self.inner().statements.purge(key, expected);
        self.ask(&key, call, answer::purged).await
    }
}

/// Marks by resource, one row each, never pruned. A row has no format of its own: that of the tables is the marks',
/// too, and a later format's migration replaces the functions by which an open store of this version asks. To guard data in the same database, admit within the
/// transaction that writes: [`fence_in`](PostgresStore::fence_in).
impl FenceStore for PostgresStore {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        let call = self.inner().statements.fence(resource, token, nonce);
        self.ask_guard(resource, call, answer::admission).await
    }

    async fn raise_floor(&self, resource: &str, floor: Token) -> Result<Token, StoreError> {
        let call = self.inner().statements.raise_floor(resource, floor);
        self.ask_guard(resource, call, answer::high).await
    }

    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        let call = self.inner().statements.high_water(resource);
        self.ask_guard(resource, call, answer::high).await
    }
}

impl PostgresStore {
    async fn ask_guard<T>(
        &self,
        resource: &str,
        call: Call,
        read: impl FnOnce(&Row) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let asked = self.send(&call, None).await;
        let answer = asked.and_then(|rows| read(only(&rows)?));
        answer.map_err(of_mark(resource))
    }
}
