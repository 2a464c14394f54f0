//! Round trips, counted by the server.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use system_tests::servers::Redis;
use tower_claim::store::{
    Beat, ClaimMany, ClaimManyRequest, Claimed, Finish, FinishRequest, Marked, Owner, Release,
    Renewed, Value,
};
use tower_claim::{ClaimStore, Key, Settings, Token};
use tower_claim_redis::RedisStore;

use super::{ask, claim, granted, granted_for, key, nonce, release_of};

/// Calls of clients since the last look. What a script calls is counted under its own names.
struct Meter(MultiplexedConnection);

const OF_CLIENTS: [&str; 4] = ["evalsha", "eval", "script|load", "ping"];

impl Meter {
    async fn calls(&mut self) -> u64 {
        let text: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut self.0)
            .await
            .unwrap();
        assert!(!text.contains("cmdstat_publish:"), "nobody waits: {text}");
        let _: () = redis::cmd("CONFIG")
            .arg("RESETSTAT")
            .query_async(&mut self.0)
            .await
            .unwrap();
        let calls = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")))?;
            line.split(',').next()?.parse::<u64>().ok()
        };
        OF_CLIENTS.iter().filter_map(|name| calls(name)).sum()
    }
}

#[tokio::test]
async fn each_step_is_one_trip() {
    let redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut meter = Meter(client.get_multiplexed_async_connection().await.unwrap());
    let settings = Settings::new(Duration::from_secs(20));

    // The server learns each script once.
    let first = granted(&store, key()).await;
    assert_eq!(store.mark(first).await.unwrap(), Marked::Marked);
    let _ = store.renew(&[]).await.unwrap();
    let _ = store
        .renew(&[Beat {
            owner: first,
            progress: 1,
        }])
        .await
        .unwrap();
    let done = FinishRequest {
        owner: first,
        value: Value::Tombstone,
        keep: Duration::from_secs(9),
    };
    assert_eq!(store.finish(done).await.unwrap(), Finish::Finished);
    let _ = store.release(release_of(&store, first)).await.unwrap();
    let _ = store.peek(key()).await.unwrap();
    meter.calls().await;

    let owner = granted(&store, key()).await;
    assert_eq!(meter.calls().await, 1, "a claim of a free key");
    assert!(matches!(claim(&store, owner.key).await, Claimed::Busy(_)));
    assert_eq!(meter.calls().await, 1, "a claim of a busy key");
    assert_eq!(store.mark(owner).await.unwrap(), Marked::Marked);
    assert_eq!(meter.calls().await, 1, "a mark");
    let finish = FinishRequest {
        owner,
        value: Value::Kept(Bytes::from(vec![7; 100_000])),
        keep: Duration::from_secs(60),
    };
    assert_eq!(
        store.finish(finish.clone()).await.unwrap(),
        Finish::Finished
    );
    assert_eq!(meter.calls().await, 1, "a finish");
    let again = claim(&store, owner.key).await;
    assert!(matches!(again, Claimed::Done(done) if done.value == finish.value));
    assert_eq!(meter.calls().await, 1, "a replay");
    let owner = granted(&store, key()).await;
    meter.calls().await;
    assert_eq!(
        store.release(release_of(&store, owner)).await.unwrap(),
        Release::Released
    );
    assert_eq!(meter.calls().await, 1, "a release");

    let mut beats = Vec::new();
    for _ in 0..128 {
        beats.push(Beat {
            owner: granted(&store, key()).await,
            progress: 0,
        });
    }
    meter.calls().await;
    let answers = store.renew(&beats).await.unwrap();
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Renewed::Renewed { .. }))
    );
    assert_eq!(meter.calls().await, 4, "a renewal of 128 holds, 32 each");
    let _ = store.renew(&beats[..32]).await.unwrap();
    assert_eq!(meter.calls().await, 1, "a renewal of 32 holds");

    let mut keys: Vec<Key> = (0..10).map(|_| key()).collect();
    keys.sort_unstable();
    let request = ClaimManyRequest {
        keys: &keys,
        nonce: nonce(),
        settings: &settings,
        floor: Token::ZERO,
        not_after: ask(&store, key(), &settings).not_after,
    };
    let _ = store.claim_many(request).await.unwrap();
    assert_eq!(meter.calls().await, 1, "a claim of ten keys");
}

/// A hold that has lapsed.
async fn lapsed(store: &RedisStore) -> Owner {
    let brief = Settings::new(Duration::from_millis(20));
    let owner = granted_for(store, key(), &brief).await;
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let view = store.peek(owner.key).await.unwrap();
        if view.is_some_and(|view| view.lapsed) {
            return owner;
        }
        assert!(Instant::now() < end, "it does not lapse");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_takeover_and_a_lost_race_are_one_trip_each() {
    let redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut meter = Meter(client.get_multiplexed_async_connection().await.unwrap());
    let before = lapsed(&store).await;
    meter.calls().await;
    let taken = claim(&store, before.key).await;
    assert!(
        matches!(&taken, Claimed::Granted(grant)
            if grant.took_over.as_ref().is_some_and(|of| of.token == before.token)),
        "{taken:?}"
    );
    assert_eq!(meter.calls().await, 1, "a takeover");

    for contested in [key(), lapsed(&store).await.key] {
        meter.calls().await;
        let answers = join_all((0..8).map(|_| claim(&store, contested))).await;
        let granted = |answer: &&Claimed| matches!(answer, Claimed::Granted(_));
        let busy = |answer: &&Claimed| matches!(answer, Claimed::Busy(_));
        assert_eq!(answers.iter().filter(granted).count(), 1);
        assert_eq!(answers.iter().filter(busy).count(), 7);
        assert_eq!(meter.calls().await, 8, "who wins and who loses");
    }
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_learns_them_again() {
    let redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut raw = client.get_multiplexed_async_connection().await.unwrap();
    for _ in 0..3 {
        let owner = granted(&store, key()).await;
        let _: () = redis::cmd("SCRIPT")
            .arg("FLUSH")
            .query_async(&mut raw)
            .await
            .unwrap();
        assert!(matches!(claim(&store, owner.key).await, Claimed::Busy(_)));
        let _: () = redis::cmd("SCRIPT")
            .arg("FLUSH")
            .query_async(&mut raw)
            .await
            .unwrap();
        assert_eq!(
            store.release(release_of(&store, owner)).await.unwrap(),
            Release::Released
        );
    }
}
