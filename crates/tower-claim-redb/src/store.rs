//! The protocol's traits over the file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::time::Duration;

use tokio::sync::oneshot;
use tower_claim::engine::{Asker, Record};
use tower_claim::store::{
    Beat, Broken, Capabilities, ClaimAdmin, ClaimRequest, ClaimStore, Claimed, DynClaimStore,
    Event, Finish, FinishRequest, Marked, Owner, Promise, Purged, RecordView, Release,
    ReleaseRequest, Renewed, Resolution, Resolved, ScanPage, StoreTime, Watched,
};
use tower_claim::{Key, StoreError, Token};

use crate::book;
use crate::builder::RedbStoreBuilder;
use crate::calls::Inner;
use crate::error::{OpenError, Trouble};
use crate::fence::RedbFenceStore;
use crate::writer::Order;

/// Records on one page of a scan, at most.
const PAGE: usize = 256;

/// Keeps claims in one file of this machine. Clones are one store.
///
/// | Promise | |
/// |---|---|
/// | forgets what it answered | after a flush |
/// | outlives the process | yes |
/// | several keys at once | atomic, any keys |
/// | heartbeats | independent of the user's runtime |
/// | smallest span of time | 1 µs |
/// | clock | this process's |
/// | weakened by a flush | rising tokens, one owner, one result |
/// | weakened by a failover | nothing |
/// | weakened by a moved clock | one result |
/// | weakened by a restart | nothing |
#[derive(Clone)]
pub struct RedbStore {
    pub(crate) inner: Arc<Inner>,
}

impl RedbStore {
    /// What it promises: the table above, in code.
    pub const CAPABILITIES: Capabilities = Capabilities::in_process("redb")
        .with_durable(true)
        .with_weakened(
            Event::Flush,
            &[Promise::RisingTokens, Promise::OneOwner, Promise::OneResult],
        )
        .with_weakened(Event::MovedClock, &[Promise::OneResult])
        .with_time_unit(Duration::from_micros(1));

    /// Opens the file, or makes it where there is none, with the default settings.
    ///
    /// # Errors
    ///
    /// As for [`RedbStoreBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// A store with settings of its own.
    pub fn builder() -> RedbStoreBuilder {
        RedbStoreBuilder::default()
    }

    /// A guard whose marks lie in the same file.
    pub fn fence_store(&self) -> RedbFenceStore {
        RedbFenceStore::new(self.clone())
    }

    /// Closes the file, after all calls sent before: as long as the disk needs for them. Later calls of every
    /// clone are refused. Without it the file is closed soon after the last clone is gone.
    ///
    /// # Cancellation
    ///
    /// The file is closed all the same if the first poll found room in the queue.
    pub async fn close(self) {
        let (told, closed) = oneshot::channel();
        let mut order = Order::Close(told);
        // A full queue empties, or its writer is gone.
        while let Err(TrySendError::Full(back)) = self.inner.orders.try_send(order) {
            order = back;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let _ = closed.await;
    }
}

impl ClaimStore for RedbStore {
    fn capabilities(&self) -> Capabilities {
        Self::CAPABILITIES
    }

    fn now(&self) -> StoreTime {
        self.inner.time.now()
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        let asker = Asker {
            nonce: request.nonce,
            fingerprint: request.fingerprint,
            not_after: request.not_after,
        };
        // What is refused without a trace needs no writer, and no disk.
        let refused = self.inner.look(request.key, move |record, at| {
            let remembers = |by: &Claimed| matches!(by, Claimed::Mine { .. } | Claimed::Ended);
            record.refusal(&asker, at.now).filter(|by| !remembers(by))
        });
        if let Some(refused) = refused.await? {
            return Ok(refused);
        }
        let settings = Arc::new(request.settings.clone());
        let (key, floor) = (request.key, request.floor);
        self.inner
            .change(key, move |record, at| {
                let request = ClaimRequest {
                    key,
                    nonce: asker.nonce,
                    fingerprint: asker.fingerprint,
                    settings: &settings,
                    floor,
                    not_after: asker.not_after,
                };
                record.claim(&request, at, |_| Arc::clone(&settings))
            })
            .await
    }

    /// A beat whose record cannot be read is [`Renewed::Unsure`] beside the others.
    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        let beats = beats.to_vec();
        self.inner
            .write(move |book, at| {
                let renew = |beat: &Beat| {
                    let key = &beat.owner.key;
                    match book.change(key, at, |record| Ok(record.renew(beat, at))) {
                        Err(Trouble::Call(error)) => {
                            tracing::error!(%error, "a claim cannot be renewed");
                            Ok(Renewed::Unsure)
                        }
                        answer => answer,
                    }
                };
                beats.iter().map(renew).collect()
            })
            .await
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        self.inner
            .change(owner.key, move |record, at| Ok(record.mark(owner, at)))
            .await
    }

    async fn finish(&self, mut request: FinishRequest) -> Result<Finish, StoreError> {
        self.inner
            .change(request.owner.key, move |record, at| {
                Ok(record.finish(&mut request, at))
            })
            .await
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        self.inner
            .change(request.key, move |record, at| {
                Ok(record.release(&request, at))
            })
            .await
    }

    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        let Inner { bells, poll, .. } = &*self.inner;
        let look = || {
            self.inner
                .look(key, move |record, at| record.watch(token, at))
        };
        bells.watch(key, token, *poll, || self.now(), look).await
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        let peek = move |record: Record, at| (!record.is_vacant()).then(|| record.peek(key, at));
        self.inner.look(key, peek).await
    }

    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        Ok(Arc::new(self.clone()))
    }
}

impl ClaimAdmin for RedbStore {
    /// Leaves out records that cannot be read, each with an error in the log; [`peek`](ClaimStore::peek) answers
    /// the error itself.
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        let limit = limit.clamp(1, PAGE);
        let inner = &*self.inner;
        let (file, time) = (Arc::clone(&inner.file), Arc::clone(&inner.time));
        let (records, next) = inner
            .read(move |txn| book::scan(txn, file.runs(), from, limit, time.at()))
            .await?;
        Ok(ScanPage { records, next })
    }

    async fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        self.inner
            .change(key, move |record, at| {
                record.resolve(expected, resolution, at)
            })
            .await
    }

    async fn ask_revoke(&self, key: Key, expected: Token) -> Result<bool, StoreError> {
        self.inner
            .change(key, move |record, at| Ok(record.ask_revoke(expected, at)))
            .await
    }

    async fn break_claim(&self, key: Key, expected: Token) -> Result<Broken, StoreError> {
        self.inner
            .change(key, move |record, at| record.break_claim(expected, at))
            .await
    }

    async fn purge(&self, key: Key, expected: Token) -> Result<Purged, StoreError> {
        self.inner
            .change(key, move |record, at| record.purge(expected, at))
            .await
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore")
            .field("watched", &self.inner.bells.watched())
            .finish_non_exhaustive()
    }
}
