//! The data folder is wiped under a running store: revisions begin anew, and tokens with them.

use std::time::Duration;

use bytes::Bytes;
use system_tests::servers::Etcd;
use tower_claim::store::{Admission, Finish, FinishRequest, Value};
use tower_claim::{
    Attempt, Claim, ClaimStore, FenceStore, Keeper, Key, MemoryFenceStore, Terms, Token,
};

use super::bench::{endpoints, hold, key, prefix, store_on, until};

async fn granted(keeper: &Keeper, one: Key) -> Claim {
    let terms = Terms::builder(Duration::from_secs(12)).build();
    let terms = terms.expect("a lease long enough");
    match keeper.claim(one, None, &terms, Token::ZERO).await {
        Ok(Attempt::Granted(claim)) => claim,
        other => panic!("a free key was not granted: {other:?}"),
    }
}

async fn write(guard: &MemoryFenceStore, claim: &Claim) -> Admission {
    let answer = guard.admit("data", claim.token(), claim.nonce()).await;
    answer.expect("memory answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_fall_with_a_wiped_folder_and_the_guards_floor_heals_them() {
    let mut server = Etcd::start();
    let store = store_on(endpoints(&server), &prefix()).await;
    let (owner, rival) = (Keeper::new(store.clone()), Keeper::new(store.clone()));
    let (guard, work) = (MemoryFenceStore::new(), key());
    // More revisions than there will be after the wipe.
    for _ in 0..50 {
        hold(&store, key(), Duration::from_secs(60)).await;
    }
    let finished = hold(&store, key(), Duration::from_secs(60)).await;
    let finish = FinishRequest {
        owner: finished,
        value: Value::Kept(Bytes::from_static(b"result")),
        keep: Duration::from_secs(600),
    };
    assert_eq!(store.finish(finish).await.ok(), Some(Finish::Finished));
    let before = granted(&owner, work).await;
    assert_eq!(write(&guard, &before).await, Admission::Admitted);

    server.wipe();
    until("the empty server", async || store.peek(work).await.is_ok()).await;
    // The result is forgotten, and who held the key does not know yet.
    hold(&store, finished.key, Duration::from_secs(60)).await;
    let next = granted(&rival, work).await;
    assert!(next.token() < before.token(), "revisions began anew");
    let high = before.token();
    assert_eq!(write(&guard, &next).await, Admission::Stale { high });

    let high = guard.high_water("data").await.expect("memory answers");
    let healed = match rival.heal(next, high).await {
        Ok(Attempt::Granted(healed)) => healed,
        other => panic!("a claim that heals: {other:?}"),
    };
    assert!(healed.token() > before.token());
    assert_eq!(write(&guard, &healed).await, Admission::Admitted);
    let high = healed.token();
    assert_eq!(write(&guard, &before).await, Admission::Stale { high });
    // By a beat, or at its stop point.
    let lost = tokio::time::timeout(Duration::from_secs(40), before.lost());
    lost.await.expect("the owner before hears of it");

    // The floor outlives the record: the next owner needs no healing.
    healed.release().await.expect("released");
    let last = granted(&rival, work).await;
    assert!(last.token() > high, "{:?} after {high:?}", last.token());
    assert_eq!(write(&guard, &last).await, Admission::Admitted);
}
