//! The laws, as every engine is held to them.

use std::time::Duration;

use system_tests::servers::Redis;
use tower_claim::conformance::{Suite, Time};
use tower_claim_redis::RedisStore;

use super::{builder, fresh, raw, server};
use crate::suite;

#[tokio::test]
async fn every_law_holds_plain_and_behind_every_trouble() {
    // Of its own: a scan walks the keys of other tests as well.
    let redis = Redis::start();
    let open = async || {
        let store = RedisStore::builder()
            .url(redis.url())
            .prefix(fresh())
            .connect();
        store.await.expect("the server is up")
    };
    suite::every_law(suite::QUICK, open).await;
}

#[tokio::test]
async fn every_law_holds_behind_a_slow_wire() {
    // Of its own, for the same reason.
    let redis = Redis::start();
    let open = async |address: String| {
        let url = format!("redis://{address}");
        let store = RedisStore::builder().url(url).prefix(fresh()).connect();
        store.await.expect("the relay passes")
    };
    let time = Time::Real {
        unit: Duration::from_millis(200),
        tolerance: Duration::from_millis(20),
    };
    suite::behind_the_relay(Suite::new(time), &redis.address(), open).await;
}

#[tokio::test]
async fn a_lost_answer_is_an_honest_error_and_its_repeat_is_harmless() {
    let prefix = fresh();
    let direct = RedisStore::builder().url(server().url()).prefix(&prefix);
    let direct = direct.connect().await.expect("the server is up");
    let through = async |address: String| {
        let url = format!("redis://{address}");
        let store = RedisStore::builder().url(url).prefix(&prefix).connect();
        store.await.expect("the relay passes")
    };
    suite::lost_answers(&server().address(), through, direct).await;
}

#[tokio::test]
async fn a_token_is_the_greatest_of_three() {
    let store_ms = async || {
        let time = redis::cmd("TIME").query_async(&mut raw().await).await;
        let [seconds, micros]: [u64; 2] = time.expect("the time");
        seconds * 1_000 + micros / 1_000
    };
    let store = builder().connect().await.expect("the server is up");
    suite::tokens_follow_their_rule(&store, store_ms).await;
}

#[tokio::test]
async fn the_laws_of_a_guard_hold() {
    suite::guard_laws(async || builder().connect().await.expect("the server is up")).await;
}
