//! A primary is killed, and its replica promoted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tower_claim::store::{Beat, Finish, FinishRequest, Release, Renewed, Value};
use tower_claim::{ClaimStore, DynClaimStore, Settings, StoreError};
use tower_claim_redis::RedisStore;

use super::{Cluster, SLOTS, connect, key_in};
use crate::redis::{claim, granted, granted_for, release_of};

/// Asks until there is an answer.
async fn until_answered<T>(
    within: Duration,
    mut call: impl AsyncFnMut() -> Result<Option<T>, StoreError>,
) -> T {
    let since = Instant::now();
    loop {
        let why = match call().await {
            Ok(Some(answer)) => return answer,
            Ok(None) => "unsure".to_owned(),
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                error.to_string()
            }
        };
        assert!(since.elapsed() < within, "no answer: {why}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whole lives of keys that lie with the other primaries, counted.
async fn live_elsewhere(store: RedisStore, stop: Arc<AtomicBool>, lives: Arc<AtomicU32>) {
    while !stop.load(Ordering::Relaxed) {
        for slots in &SLOTS[1..] {
            let owner = granted(&store, key_in(&store, slots)).await;
            let beat = Beat { owner, progress: 1 };
            let renewed = store.renew(&[beat]).await.expect("undisturbed");
            assert!(matches!(renewed[..], [Renewed::Renewed { .. }]));
            let released = store.release(release_of(&store, owner)).await;
            assert_eq!(released.expect("undisturbed"), Release::Released);
            lives.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_replaced_and_other_slots_hear_nothing_of_it() {
    let mut cluster = Cluster::start(1).await;
    let store = cluster.builder().connect().await.unwrap();
    let keeper = store.keeper_store().await.unwrap();
    let settings = Settings::new(Duration::from_secs(300));
    let held = granted_for(&store, key_in(&store, &SLOTS[0]), &settings).await;
    let work = granted_for(&store, key_in(&store, &SLOTS[0]), &settings).await;
    let gone = granted(&store, key_in(&store, &SLOTS[0])).await;
    let released = store.release(release_of(&store, gone)).await.unwrap();
    assert_eq!(released, Release::Released);
    // The replica has all that: `WAIT` counts writes of its own connection.
    let mut primary = connect(&cluster.nodes[0]).await;
    let _: () = redis::cmd("SET")
        .arg(store.name_of(&key_in(&store, &SLOTS[0])))
        .arg(1)
        .query_async(&mut primary)
        .await
        .unwrap();
    // Each time shorter than the client waits for any answer.
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        let copies: u64 = redis::cmd("WAIT")
            .arg(1)
            .arg(100)
            .query_async(&mut primary)
            .await
            .unwrap();
        if copies == 1 {
            break;
        }
        assert!(Instant::now() < patience, "the replica does not follow");
    }

    let stop = Arc::new(AtomicBool::new(false));
    let lives = Arc::<AtomicU32>::default();
    let elsewhere = live_elsewhere(store.clone(), Arc::clone(&stop), Arc::clone(&lives));
    let elsewhere = tokio::spawn(elsewhere);
    cluster.nodes[0].kill();
    let before = lives.load(Ordering::Relaxed);
    let killed = Instant::now();
    let within = Duration::from_secs(60);

    let beat = Beat {
        owner: held,
        progress: 1,
    };
    let renewed = until_answered(within, async || {
        let answers = keeper.dyn_renew(std::slice::from_ref(&beat)).await?;
        let known = |answer: &Renewed| *answer != Renewed::Unsure;
        Ok(answers.into_iter().find(known))
    });
    let finish = FinishRequest {
        owner: work,
        value: Value::Kept("out".into()),
        keep: Duration::from_secs(60),
    };
    let finished = until_answered(within, async || {
        store.finish(finish.clone()).await.map(Some)
    });
    let (renewed, finished) = tokio::join!(renewed, finished);
    // While the first primary was away.
    let lived = lives.load(Ordering::Relaxed) - before;
    let back = killed.elapsed();
    assert!(matches!(renewed, Renewed::Renewed { .. }), "{renewed:?}");
    assert_eq!(finished, Finish::Finished);
    let next = granted(&store, gone.key).await;
    assert!(next.token > gone.token, "tokens rise over a failover");
    let replayed = claim(&store, work.key).await;
    assert!(
        matches!(&replayed, tower_claim::store::Claimed::Done(done) if done.value == finish.value),
        "{replayed:?}"
    );

    stop.store(true, Ordering::Relaxed);
    elsewhere.await.expect("no call elsewhere fails");
    println!("back after {back:?}; elsewhere {lived} lives meanwhile");
    assert!(lived > 10, "{lived} lives");

    // Who comes now is told of the dead node as well, and does not mind.
    let newcomer = cluster.builder().connect().await.unwrap();
    granted(&newcomer, key_in(&newcomer, &SLOTS[0])).await;
}
