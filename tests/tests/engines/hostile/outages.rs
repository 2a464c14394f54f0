//! The server stands still.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tower_claim::store::{
    Beat, Claimed, Finish, FinishRequest, Marked, Owner, Release, Renewed, Value,
};
use tower_claim::{Attempt, DynClaimStore, Loss, Settings, StoreError, Token};

use super::Server;
use super::scene::{ANSWER, Guard, beaten, knows, settled, terms, two, within};
use crate::suite::{claim, key, nonce, release};

/// Stopped for less than a lease: nobody notices.
pub async fn brief_pause<E: Server>() {
    let engine = E::start().await;
    let (owner, rival) = two::<E>(&engine).await;
    let (key, terms) = (key(), terms::<E>());
    let held = owner.take(key, &terms, ANSWER).await;
    beaten(&held).await;
    engine.stop();
    tokio::time::sleep(E::lease() * 2 / 5).await;
    engine.go_on();
    // Two leases on: beats came through again, or it would be over.
    tokio::time::sleep(E::lease() * 2).await;
    assert_eq!(held.check(), Ok(()));
    let asked = rival.try_take(key, &terms).await;
    assert!(matches!(asked, Ok(Attempt::Busy(_))), "{asked:?}");
    within(ANSWER, "the release", held.release())
        .await
        .expect("it is answered");
    drop(rival.take(key, &terms, ANSWER).await);
}

/// Stopped for more than a lease: the owner stops by its own clock, calls end by their timeouts, waiters wake,
/// and what the server was still to do arrives late, with the effect of one.
pub async fn long_pause<E: Server>() {
    let engine = E::start().await;
    let (owner, rival) = two::<E>(&engine).await;
    let (key, terms, guard) = (key(), terms::<E>(), Guard::default());
    let held = owner.take(key, &terms, ANSWER).await;
    assert!(guard.write_as(&held).await);
    let waiter = {
        let (store, token) = (Arc::clone(&rival.store), held.token());
        tokio::spawn(async move {
            // A lost connection is an answer, too: whoever waits asks again.
            while store.dyn_watch(key, token).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    };
    let calls = Calls::prepare(&rival.store).await;

    beaten(&held).await;
    let stopped = Instant::now();
    engine.stop();
    let lost = async {
        let loss = held.lost().await;
        (loss, stopped.elapsed())
    };
    let ((loss, after), (), ()) = tokio::join!(
        within(E::lease() + ANSWER, "the loss", lost),
        knows(&held, Instant::now(), E::lease()),
        calls.unanswered(&rival.store)
    );
    assert_eq!(loss, Loss::StoreUnreachable);
    assert!(
        after >= E::lease() / 2,
        "the last beat is never older than half a lease: {after:?}"
    );
    // The server's own clock has passed the lapse, too.
    tokio::time::sleep(E::lease() / 2).await;
    engine.go_on();

    let next = rival.take(key, &terms, E::lease() + ANSWER).await;
    assert!(next.token() > held.token());
    assert!(guard.write_as(&next).await);
    assert!(!guard.write_as(&held).await, "the old owner writes");
    within(ANSWER, "the waiter", waiter)
        .await
        .expect("it does not panic");
    calls.repeated(&rival.store).await;
}

/// One call of each kind, on a record of its own each.
struct Calls {
    settings: Settings,
    free: Owner,
    renewed: Owner,
    marked: Owner,
    finished: Owner,
    released: Owner,
    not_after: tower_claim::store::StoreTime,
}

impl Calls {
    async fn prepare(store: &Arc<dyn DynClaimStore>) -> Self {
        let settings = Settings::new(Duration::from_secs(60));
        let not_after = store.dyn_now().saturating_add(Duration::from_secs(60));
        let hold = async || {
            let mut owner = free();
            let granted = store.dyn_claim(claim(&owner, &settings, not_after)).await;
            let Ok(Claimed::Granted(grant)) = granted else {
                panic!("a free key: {granted:?}");
            };
            owner.token = grant.token;
            owner
        };
        let (renewed, marked) = (hold().await, hold().await);
        let (finished, released) = (hold().await, hold().await);
        Self {
            free: free(),
            renewed,
            marked,
            finished,
            released,
            not_after,
            settings,
        }
    }

    /// Each ends by itself, in doubt or refused.
    async fn unanswered(&self, store: &Arc<dyn DynClaimStore>) {
        let calls = async {
            tokio::join!(
                failed("claim", self.claim(store)),
                failed("renew", self.renew(store)),
                failed("mark", store.dyn_mark(self.marked)),
                failed("finish", self.finish(store)),
                failed("release", self.release(store)),
                failed("peek", store.dyn_peek(self.free.key)),
            );
        };
        within(ANSWER, "calls without an answer", calls).await;
    }

    /// Each sent again, has the effect of one.
    async fn repeated(&self, store: &Arc<dyn DynClaimStore>) {
        settled(store).await;
        let claimed = self.claim(store).await;
        assert!(
            matches!(claimed, Ok(Claimed::Granted(_) | Claimed::Mine { .. })),
            "{claimed:?}"
        );
        let renewed = self.renew(store).await.expect("it is answered");
        assert!(
            matches!(renewed[..], [Renewed::Renewed { .. }]),
            "{renewed:?}"
        );
        let marked = store.dyn_mark(self.marked).await;
        assert_eq!(marked.expect("it is answered"), Marked::Marked);
        let finished = self.finish(store).await;
        assert_eq!(finished.expect("it is answered"), Finish::Finished);
        let released = self.release(store).await.expect("it is answered");
        assert!(
            matches!(released, Release::Released | Release::Already),
            "{released:?}"
        );
    }

    async fn claim(&self, store: &Arc<dyn DynClaimStore>) -> Result<Claimed, StoreError> {
        let request = claim(&self.free, &self.settings, self.not_after);
        store.dyn_claim(request).await
    }

    async fn renew(&self, store: &Arc<dyn DynClaimStore>) -> Result<Vec<Renewed>, StoreError> {
        let beat = Beat {
            owner: self.renewed,
            progress: 1,
        };
        store.dyn_renew(&[beat]).await
    }

    async fn finish(&self, store: &Arc<dyn DynClaimStore>) -> Result<Finish, StoreError> {
        let request = FinishRequest {
            owner: self.finished,
            value: Value::Tombstone,
            keep: Duration::from_secs(60),
        };
        store.dyn_finish(request).await
    }

    async fn release(&self, store: &Arc<dyn DynClaimStore>) -> Result<Release, StoreError> {
        store
            .dyn_release(release(&self.released, self.not_after))
            .await
    }
}

fn free() -> Owner {
    Owner {
        key: key(),
        nonce: nonce(),
        token: Token::ZERO,
    }
}

async fn failed<T: std::fmt::Debug>(
    call: &str,
    answer: impl Future<Output = Result<T, StoreError>>,
) {
    match answer.await {
        Err(StoreError::Ambiguous(_) | StoreError::Unavailable(_)) => {}
        other => panic!("{call} of a server that stands still: {other:?}"),
    }
}
