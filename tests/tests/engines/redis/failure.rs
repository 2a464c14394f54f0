//! What a call says when the server fails it: surely not applied, or in doubt.

use std::time::{Duration, Instant};

use system_tests::servers::Redis;
use tower_claim::store::{Beat, Claimed, Finish, FinishRequest, Renewed, Value, Watched};
use tower_claim::{ClaimStore, LapsePolicy, Settings, StoreError};
use tower_claim_redis::{RedisStore, RedisStoreBuilder};
use tower_idempotency::IdempotencyLayer;

use super::{ask, claim, fresh, granted, granted_for, key, release_of};

const LIMIT: Duration = Duration::from_secs(2);

fn quick(redis: &Redis) -> RedisStoreBuilder {
    RedisStore::builder().url(redis.url()).call_timeout(LIMIT)
}

async fn refused(store: &RedisStore) -> StoreError {
    let settings = Settings::new(Duration::from_secs(20));
    let answer = store.claim(ask(store, key(), &settings)).await;
    answer.expect_err("it must fail")
}

#[tokio::test]
async fn a_call_past_its_timeout_is_in_doubt_once_sent_and_not_applied_before() {
    let mut redis = Redis::start();
    let store = quick(&redis).connect().await.unwrap();
    let held = granted(&store, key()).await;

    redis.process().stop();
    let since = Instant::now();
    let silent = refused(&store).await;
    let took = since.elapsed();
    redis.process().go_on();
    assert!(silent.is_ambiguous(), "it was sent: {silent:?}");
    assert!((LIMIT..LIMIT * 5).contains(&took), "{took:?}");
    assert!(matches!(claim(&store, held.key).await, Claimed::Busy(_)));

    redis.kill();
    // The first may find out that its connection is broken.
    let _ = refused(&store).await;
    let since = Instant::now();
    let down = refused(&store).await;
    assert!(matches!(down, StoreError::Unavailable(_)), "{down:?}");
    assert!(since.elapsed() < LIMIT * 5);
    redis.run();
    granted(&store, key()).await;
}

#[tokio::test]
async fn a_full_server_says_so_and_what_is_held_goes_on() {
    let redis = Redis::start();
    let store = quick(&redis).connect().await.unwrap();
    let held = granted(&store, key()).await;
    let full = redis.ask("CONFIG SET maxmemory 1");
    assert!(full.starts_with("+OK"), "{full}");
    let error = refused(&store).await;
    assert!(matches!(error, StoreError::Full), "{error:?}");
    assert!(redis.ask("CONFIG SET maxmemory 0").starts_with("+OK"));
    let beat = Beat {
        owner: held,
        progress: 1,
    };
    let renewed = store.renew(&[beat]).await.unwrap();
    assert!(matches!(renewed[..], [Renewed::Renewed { .. }]));
}

#[tokio::test]
async fn a_server_that_became_a_replica_or_lost_its_replicas_has_applied_nothing() {
    let redis = Redis::start();
    let store = quick(&redis).connect().await.unwrap();
    granted(&store, key()).await;
    assert!(
        redis
            .ask("CONFIG SET min-replicas-to-write 1")
            .starts_with("+OK")
    );
    let error = refused(&store).await;
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(
        redis
            .ask("CONFIG SET min-replicas-to-write 0")
            .starts_with("+OK")
    );
    granted(&store, key()).await;

    // Of nobody who answers.
    assert!(redis.ask("REPLICAOF 127.0.0.1 1").starts_with("+OK"));
    let error = refused(&store).await;
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(redis.ask("REPLICAOF NO ONE").starts_with("+OK"));
    granted(&store, key()).await;
}

#[tokio::test]
async fn a_log_that_is_always_written_outlives_a_kill_and_hold_may_be_built_on_it() {
    let mut redis = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let hold = |store: &RedisStore| {
        let layer = IdempotencyLayer::builder(store.clone());
        layer.on_lapse(LapsePolicy::Hold).build().err()
    };
    let plain = quick(&redis).connect().await.unwrap();
    let why = hold(&plain).expect("a replica of it may be promoted");
    assert!(!why.to_string().contains('\n'), "{why}");
    let store = quick(&redis).durable_single_node().connect().await.unwrap();
    assert!(hold(&store).is_none());

    let mut settings = Settings::new(Duration::from_secs(60));
    settings.on_lapse = LapsePolicy::Hold;
    let held = granted_for(&store, key(), &settings).await;
    let work = granted_for(&store, key(), &settings).await;
    let finish = FinishRequest {
        owner: work,
        value: Value::Kept("out".into()),
        keep: Duration::from_secs(60),
    };
    assert_eq!(
        store.finish(finish.clone()).await.unwrap(),
        Finish::Finished
    );
    redis.kill();
    redis.run();
    let until = Instant::now() + Duration::from_secs(30);
    let busy = loop {
        match store.claim(ask(&store, held.key, &settings)).await {
            Ok(answer) => break answer,
            Err(error) => assert!(error.is_retryable() && Instant::now() < until, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(
        matches!(&busy, Claimed::Busy(busy) if busy.token == held.token),
        "{busy:?}"
    );
    let replayed = claim(&store, work.key).await;
    assert!(
        matches!(&replayed, Claimed::Done(done) if done.value == finish.value),
        "{replayed:?}"
    );
}

#[tokio::test]
async fn a_users_manager_comes_back_and_without_an_address_whoever_waits_polls() {
    let mut redis = Redis::start();
    let client = redis::Client::open(redis.url()).unwrap();
    let manager = client.get_connection_manager().await.unwrap();
    let alone = RedisStore::builder()
        .connection(manager)
        .prefix(fresh())
        .poll_step(Duration::from_millis(50));
    let store = alone.connect().await.unwrap();
    let held = granted(&store, key()).await;
    let watch = tokio::time::timeout(Duration::from_secs(15), store.watch(held.key, held.token));
    let release = async { store.release(release_of(&store, held)).await.unwrap() };
    let (seen, _) = tokio::join!(watch, release);
    assert_eq!(seen.expect("the poll sees it").unwrap(), Watched::Ended);

    redis.kill();
    let error = refused(&store).await;
    assert!(error.is_retryable(), "{error:?}");
    redis.run();
    let until = Instant::now() + Duration::from_secs(30);
    while let Err(error) = store.peek(key()).await {
        assert!(error.is_retryable() && Instant::now() < until, "{error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    granted(&store, key()).await;
}
