//! Waiting: many on one hold, and without any notification.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use system_tests::servers::Redis;
use tower_claim::store::{Finish, FinishRequest, Owner, Release, Value, Watched};
use tower_claim::{ClaimStore, Key, Settings};
use tower_claim_redis::RedisStore;

use super::{builder, fresh, granted, granted_for, key, raw, release_of, server};

/// Waits until this channel has a subscriber.
pub(super) async fn listens(raw: &mut MultiplexedConnection, channel: &str) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let (_, count): (String, i64) = redis::cmd("PUBSUB")
            .arg("NUMSUB")
            .arg(channel)
            .query_async(raw)
            .await
            .unwrap();
        // On a cluster only one node knows: the caller asks the one that the store listens at.
        if count > 0 {
            return;
        }
        assert!(Instant::now() < until, "nobody listens to {channel}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until somebody waits for this key.
pub(super) async fn is_watched(raw: &mut MultiplexedConnection, store: &RedisStore, key: &Key) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let there: bool = redis::cmd("HEXISTS")
            .arg(store.name_of(key))
            .arg("watched")
            .query_async(raw)
            .await
            .unwrap();
        if there {
            return;
        }
        assert!(Instant::now() < until, "nobody waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn of_ten_thousand_who_wait_for_one_hold_one_looks() {
    let redis = Redis::start();
    let builder = || RedisStore::builder().url(redis.url());
    let waits = builder().poll_step(Duration::from_secs(300)).connect();
    let waits = waits.await.unwrap();
    let works = builder().connect().await.unwrap();
    let owner = granted_for(&works, key(), &Settings::new(Duration::from_secs(300))).await;
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
    let (seen, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(100), all), end);
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
    let watch = tokio::time::timeout(Duration::from_secs(15), store.watch(owner.key, owner.token));
    let (seen, ()) = tokio::join!(watch, end);
    assert_eq!(seen.expect("the poll sees it").unwrap(), Watched::Ended);
}

/// The poll is a minute away: only a notification wakes.
async fn wakes(end: impl AsyncFn(&RedisStore, Owner)) -> Watched {
    let works = builder().prefix(fresh());
    let works = works.connect().await.unwrap();
    let prefix = works.name_of(&key());
    let prefix = &prefix[..prefix.len() - 64];
    let waits = RedisStore::builder().url(server().url()).prefix(prefix);
    let waits = waits
        .poll_step(Duration::from_secs(60))
        .connect()
        .await
        .unwrap();
    let owner = granted_for(&works, key(), &Settings::new(Duration::from_secs(50))).await;
    let mut raw = raw().await;
    let end = async {
        listens(&mut raw, &format!("{prefix}bell")).await;
        is_watched(&mut raw, &works, &owner.key).await;
        end(&works, owner).await;
    };
    let watch = tokio::time::timeout(Duration::from_secs(30), waits.watch(owner.key, owner.token));
    let (seen, ()) = tokio::join!(watch, end);
    seen.expect("woken long before the poll").unwrap()
}

#[tokio::test]
async fn who_waits_is_woken_by_a_notification() {
    let finished = wakes(async |store, owner| {
        let request = FinishRequest {
            owner,
            value: Value::Kept("out".into()),
            keep: Duration::from_secs(60),
        };
        assert_eq!(store.finish(request).await.unwrap(), Finish::Finished);
    });
    assert!(
        matches!(finished.await, Watched::Done(done) if done.value == Value::Kept("out".into()))
    );
    let released = wakes(async |store, owner| {
        assert_eq!(
            store.release(release_of(store, owner)).await.unwrap(),
            Release::Released
        );
    });
    assert_eq!(released.await, Watched::Ended);
}

#[tokio::test]
async fn a_broken_notification_line_wakes_all_who_wait_when_it_is_back() {
    let mended = wakes(async |store, owner| {
        let mut raw = raw().await;
        let kill = async |raw: &mut MultiplexedConnection| {
            let _: i64 = redis::cmd("CLIENT")
                .arg("KILL")
                .arg("TYPE")
                .arg("pubsub")
                .query_async(raw)
                .await
                .unwrap();
        };
        kill(&mut raw).await;
        assert_eq!(
            store.release(release_of(store, owner)).await.unwrap(),
            Release::Released
        );
        kill(&mut raw).await;
    });
    assert_eq!(mended.await, Watched::Ended);
}
