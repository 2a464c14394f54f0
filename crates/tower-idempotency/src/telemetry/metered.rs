//! A store whose calls are timed.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tower_claim::store::{
    Beat, Capabilities, ClaimRequest, Claimed, Finish, FinishRequest, Marked, Owner, RecordView,
    Release, ReleaseRequest, Renewed, StoreTime, Watched,
};
use tower_claim::{Clock, DynClaimStore, Key, Moment, StoreError, Token};

use super::Meter;

/// A store, and how long its calls take; a watch excepted, which takes as long as others work. The keeper's own
/// store is timed too, its beats included.
pub(super) struct Metered {
    pub(super) store: Arc<dyn DynClaimStore>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) meter: Meter,
}

impl Metered {
    fn timed<'a, T: Send + 'a>(
        &'a self,
        call: &'static str,
        answer: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        Box::pin(async move {
            let mut call = Call {
                over: self,
                name: call,
                began: self.clock.now(),
                is_ok: false,
            };
            let answer = answer.await;
            call.is_ok = answer.is_ok();
            answer
        })
    }
}

/// A call under way. One that is given up, because its time is up, is told of when it is dropped: a store that hangs
/// answers nothing, and is what is looked for.
struct Call<'a> {
    over: &'a Metered,
    name: &'static str,
    began: Moment,
    is_ok: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        // A clock of the user's may be what panics: a second panic would end the process.
        if !std::thread::panicking() {
            let took = self.over.clock.now().saturating_since(self.began);
            self.over.meter.store_call(self.name, took, self.is_ok);
        }
    }
}

impl DynClaimStore for Metered {
    fn dyn_capabilities(&self) -> Capabilities {
        self.store.dyn_capabilities()
    }
    fn dyn_now(&self) -> StoreTime {
        self.store.dyn_now()
    }
    fn dyn_claim<'a>(
        &'a self,
        request: ClaimRequest<'a>,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        self.timed("claim", self.store.dyn_claim(request))
    }
    fn dyn_renew<'a>(
        &'a self,
        beats: &'a [Beat],
    ) -> BoxFuture<'a, Result<Vec<Renewed>, StoreError>> {
        self.timed("renew", self.store.dyn_renew(beats))
    }
    fn dyn_mark(&self, owner: Owner) -> BoxFuture<'_, Result<Marked, StoreError>> {
        self.timed("mark", self.store.dyn_mark(owner))
    }
    fn dyn_finish(&self, request: FinishRequest) -> BoxFuture<'_, Result<Finish, StoreError>> {
        self.timed("finish", self.store.dyn_finish(request))
    }
    fn dyn_release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<Release, StoreError>> {
        self.timed("release", self.store.dyn_release(request))
    }
    fn dyn_watch(&self, key: Key, token: Token) -> BoxFuture<'_, Result<Watched, StoreError>> {
        self.store.dyn_watch(key, token)
    }
    fn dyn_peek(&self, key: Key) -> BoxFuture<'_, Result<Option<RecordView>, StoreError>> {
        self.timed("peek", self.store.dyn_peek(key))
    }
    fn dyn_keeper_store(&self) -> BoxFuture<'_, Result<Arc<dyn DynClaimStore>, StoreError>> {
        Box::pin(async move {
            let store = self.store.dyn_keeper_store().await?;
            Ok(self.meter.watch_over(store, Arc::clone(&self.clock)))
        })
    }
}

impl fmt::Debug for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}
