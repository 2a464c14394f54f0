//! Waiting: many on one hold, and without any notification.

use std::time::Duration;

use futures_util::future::join_all;
use system_tests::servers::Redis;
use tower_claim::ClaimStore;
use tower_claim::store::{Release, Watched};
use tower_claim_redis::RedisStore;

use super::stress::{is_watched, listens};
use super::{granted, key, release_of};

#[tokio::test]
async fn of_ten_thousand_who_wait_for_one_hold_one_looks() {
    let redis = Redis::start();
    let builder = || RedisStore::builder().url(redis.url());
    let waits = builder().poll_step(Duration::from_secs(60)).connect();
    let waits = waits.await.unwrap();
    let works = builder().connect().await.unwrap();
    let owner = granted(&works, key()).await;
    let client = redis::Client::open(redis.url()).unwrap();
    let mut raw = client.get_multiplexed_async_connection().await.unwrap();
    assert!(redis.ask("CONFIG RESETSTAT").starts_with("+OK"));

    let all = join_all((0..10_000).map(|_| waits.watch(owner.key, owner.token)));
    let end = async {
        listens(&mut raw, "claim:bell").await;
        is_watched(&mut raw, &works, &owner.key).await;
        assert_eq!(
            works.release(release_of(&works, owner)).await.unwrap(),
            Release::Released
        );
    };
    let (seen, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(20), all), end);
    let seen = seen.expect("woken long before the poll");
    assert!(seen.iter().all(|seen| matches!(seen, Ok(Watched::Ended))));
    // At first, when the line stood, and when it rang; and each script is sent whole once.
    let stats = redis.ask("INFO commandstats");
    let calls: u32 = ["eval", "evalsha"]
        .iter()
        .filter_map(|name| stats.split_once(&format!("cmdstat_{name}:calls=")))
        .filter_map(|(_, rest)| rest.split(',').next()?.parse::<u32>().ok())
        .sum();
    assert!(calls <= 8, "{calls} calls");
}

/// A user without the right to notifications, or a line that is down for good.
#[tokio::test]
async fn without_notifications_whoever_waits_polls() {
    let redis = Redis::with(&[
        "--save",
        "",
        "--user",
        "default",
        "on",
        "nopass",
        "~*",
        "&*",
        "+@all",
        "-subscribe",
        "-publish",
    ]);
    let store = RedisStore::builder().url(redis.url());
    let store = store.poll_step(Duration::from_millis(50)).connect();
    let store = store.await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut raw = client.get_multiplexed_async_connection().await.unwrap();
    let owner = granted(&store, key()).await;
    let end = async {
        is_watched(&mut raw, &store, &owner.key).await;
        // It ends although nobody may be told.
        assert_eq!(
            store.release(release_of(&store, owner)).await.unwrap(),
            Release::Released
        );
    };
    let watch = tokio::time::timeout(Duration::from_secs(10), store.watch(owner.key, owner.token));
    let (seen, ()) = tokio::join!(watch, end);
    assert_eq!(seen.expect("the poll sees it").unwrap(), Watched::Ended);
}
