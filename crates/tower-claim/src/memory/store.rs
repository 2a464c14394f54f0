//! The protocol's traits over the pure moves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{MemoryStore, watch};
use crate::store::{
    Beat, Broken, Capabilities, ClaimAdmin, ClaimMany, ClaimManyRequest, ClaimRequest, ClaimStore,
    Claimed, ClaimedMany, DynClaimStore, Finish, FinishRequest, Marked, Owner, Purged, RecordView,
    Release, ReleaseRequest, Renewed, Resolution, Resolved, ScanPage, StoreTime, Value, Watched,
};
use crate::{Key, StoreError, Token};

impl MemoryStore {
    /// What it promises: the table above, in code.
    pub const CAPABILITIES: Capabilities =
        Capabilities::in_process("memory").with_time_unit(Duration::from_micros(1));
}

impl ClaimStore for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Self::CAPABILITIES
    }

    fn now(&self) -> StoreTime {
        self.inner.now()
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        self.inner.change(&request.key, |record, at, terms| {
            record.claim(&request, at, |settings| terms.share(settings))
        })?
    }

    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        let renew = |beat: &Beat| {
            let key = &beat.owner.key;
            self.inner
                .change(key, |record, at, _| record.renew(beat, at))
        };
        beats.iter().map(renew).collect()
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        self.inner
            .change(&owner.key, |record, at, _| record.mark(owner, at))
    }

    async fn finish(&self, mut request: FinishRequest) -> Result<Finish, StoreError> {
        // A slice may pin a buffer many times its size, which no bound would see.
        request.value = own(request.value);
        self.inner.prepare(&request);
        let key = request.owner.key;
        self.inner
            .change(&key, |record, at, _| record.finish(&mut request, at))
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        self.inner
            .change(&request.key, |record, at, _| record.release(&request, at))
    }

    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        Ok(watch::watch(&self.inner, key, token).await)
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        Ok(self
            .inner
            .look(&key, |record, at| Some(record?.peek(key, at))))
    }

    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        Ok(Arc::new(self.clone()))
    }
}

fn own(value: Value) -> Value {
    match value {
        Value::Kept(body) => Value::Kept(Bytes::copy_from_slice(&body)),
        Value::Tombstone => Value::Tombstone,
    }
}

impl ClaimMany for MemoryStore {
    async fn claim_many(&self, request: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        self.inner.claim_many(&request)
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        let release = |request: &ReleaseRequest| {
            self.inner
                .change(&request.key, |record, at, _| record.release(request, at))
        };
        requests.iter().map(release).collect()
    }
}

impl ClaimAdmin for MemoryStore {
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        Ok(self.inner.scan(from, limit))
    }

    async fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        let resolution = match resolution {
            Resolution::Done(value, keep) => Resolution::Done(own(value), keep),
            Resolution::Absent => Resolution::Absent,
        };
        self.inner.change(&key, |record, at, _| {
            record.resolve(expected, resolution.clone(), at)
        })?
    }

    async fn ask_revoke(&self, key: Key, expected: Token) -> Result<bool, StoreError> {
        self.inner
            .change(&key, |record, at, _| record.ask_revoke(expected, at))
    }

    async fn break_claim(&self, key: Key, expected: Token) -> Result<Broken, StoreError> {
        self.inner
            .change(&key, |record, at, _| record.break_claim(expected, at))?
    }

    async fn purge(&self, key: Key, expected: Token) -> Result<Purged, StoreError> {
        self.inner
            .change(&key, |record, at, _| record.purge(expected, at))?
    }
}
