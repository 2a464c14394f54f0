//! A store whose watch tells of the key, not of the hold.

use std::sync::Arc;

use tower_claim::store::{
    Beat, Capabilities, ClaimRequest, Claimed, DynClaimStore, Finish, FinishRequest, Marked, Owner,
    RecordView, Release, ReleaseRequest, Renewed, State, StoreTime, Watched,
};
use tower_claim::{ClaimStore, Key, MemoryStore, RunOn, StoreError, Token};
use tower_idempotency::{IdempotencyLayer, OnBusy};

use crate::support::*;

#[derive(Debug, Clone)]
struct Lax(MemoryStore);

impl ClaimStore for Lax {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn now(&self) -> StoreTime {
        self.0.now()
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        self.0.claim(request).await
    }

    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        self.0.renew(beats).await
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        self.0.mark(owner).await
    }

    async fn finish(&self, request: FinishRequest) -> Result<Finish, StoreError> {
        self.0.finish(request).await
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        self.0.release(request).await
    }

    /// Looks late, and answers with whatever is done by then.
    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        let seen = self.0.watch(key, token).await?;
        tokio::time::sleep(ms(20)).await;
        match self.0.peek(key).await? {
            Some(record) if record.state == State::Done => self.0.watch(key, record.token).await,
            _ => Ok(seen),
        }
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        self.0.peek(key).await
    }

    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        self.0.keeper_store().await
    }
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_one_hold_is_not_replayed_the_outcome_of_another() {
    let app = App::new();
    let memory = MemoryStore::builder().clock(app.clock.clone()).build();
    let layer = IdempotencyLayer::builder(Lax(memory.unwrap()))
        .clock(app.clock.clone())
        .run_on(RunOn::Task)
        .on_busy(OnBusy::Wait(ms(10_000)));
    let service = app.under(&layer.build().unwrap());
    let ask = post("/orders").key("k");
    let failing = ask.clone().flags("delay=100&status=503");
    let ((), first, waiting) = tokio::join!(
        async {
            tokio::time::sleep(ms(101)).await;
            let other = ask.clone().body("other").send(&service).await;
            other.assert_fresh(201);
        },
        failing.send(&service),
        async {
            tokio::time::sleep(ms(1)).await;
            ask.send(&service).await
        },
    );
    first.assert_fresh(503);
    waiting.assert_refused(422, "key-reused");
    assert_eq!(app.effects(), 2);
}
