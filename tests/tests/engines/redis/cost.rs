//! What a claim costs Redis.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use system_tests::servers::Redis;
use tower_claim::store::{Claimed, ReleaseRequest};
use tower_claim::{ClaimMany, ClaimStore, Settings, Token};
use tower_claim_redis::RedisStore;

use super::{ask, granted, key, nonce};

async fn connect(redis: &Redis) -> MultiplexedConnection {
    let client = redis::Client::open(redis.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// A script keeps Redis from all its other clients: none may walk the thousands of nonces of a hot key.
#[tokio::test]
async fn no_script_walks_all_the_nonces_of_a_hot_key() {
    let redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let owner = granted(&store, key()).await;
    let base = store.now();
    let slow = ["CONFIG SET slowlog-log-slower-than 5000", "SLOWLOG RESET"];
    assert!(slow.iter().all(|words| redis.ask(words).starts_with("+OK")));
    for batch in 0..60_u64 {
        let refused = |n| ReleaseRequest {
            key: owner.key,
            nonce: nonce(),
            token: None,
            not_after: base.saturating_add(Duration::from_millis(60_000 + batch * 100 + n)),
        };
        // One by one would be one script each; a batch tells as well what is asked of Redis.
        let some: Vec<_> = (0..100).map(refused).collect();
        store.release_many(&some).await.unwrap();
    }
    let stats = redis.ask("INFO commandstats");
    for walks in ["hkeys", "hgetall", "hvals", "keys"] {
        assert!(
            !stats.contains(&format!("cmdstat_{walks}:")),
            "{walks} walks the record"
        );
    }
    let looks = stats.split_once("cmdstat_hscan:calls=");
    let looks = looks.and_then(|(_, rest)| rest.split(',').next()?.parse::<u32>().ok());
    let looks = looks.expect("it looks at some now and then");
    assert!(
        (500..1000).contains(&looks),
        "{looks} looks at a few for 6,000 nonces"
    );
}

/// `cargo test … -- --ignored --nocapture`: figures, none of which a busy machine can promise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn figures() {
    const SCRIPT: &str = concat!(
        include_str!("../../../../crates/tower-claim-redis/src/lua/record.lua"),
        include_str!("../../../../crates/tower-claim-redis/src/lua/spent.lua"),
        include_str!("../../../../crates/tower-claim-redis/src/lua/moves.lua"),
        include_str!("../../../../crates/tower-claim-redis/src/lua/claim.lua"),
    );
    let redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let mut raw = connect(&redis).await;
    let sha: String = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(SCRIPT)
        .query_async(&mut raw)
        .await
        .unwrap();
    let settings = Settings::new(Duration::from_secs(20));
    const EACH: u32 = 1000;
    const AT_ONCE: u32 = 32;
    let rate = |since: Instant| f64::from(EACH * AT_ONCE) / since.elapsed().as_secs_f64();
    for round in 1..=3 {
        let since = Instant::now();
        let all = (0..AT_ONCE).map(|_| {
            let (store, settings) = (store.clone(), settings.clone());
            tokio::spawn(async move {
                for _ in 0..EACH {
                    let granted = store.claim(ask(&store, key(), &settings)).await.unwrap();
                    assert!(matches!(granted, Claimed::Granted(_)));
                }
            })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        let ours = rate(since);
        let since = Instant::now();
        let all = (0..AT_ONCE).map(|_| {
            let (mut raw, sha, store) = (raw.clone(), sha.clone(), store.clone());
            tokio::spawn(async move {
                for _ in 0..EACH {
                    let mut call = redis::cmd("EVALSHA");
                    call.arg(&sha)
                        .arg(1)
                        .arg(store.name_of(&key()))
                        .arg(nonce().to_string());
                    call.arg("").arg("9007199254740991").arg(Token::ZERO.get());
                    call.arg(20_000_000)
                        .arg(0)
                        .arg(0)
                        .arg("take_over")
                        .arg(86_400_000_000_u64)
                        .arg("");
                    let _: redis::Value = call.query_async(&mut raw).await.unwrap();
                }
            })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        let theirs = rate(since);
        println!(
            "round {round}: {ours:.0} claims/s, {theirs:.0} by the raw driver, {:.2}",
            ours / theirs
        );
    }
    let mut settings = Settings::new(Duration::from_secs(20));
    settings.label = "payments".into();
    for (what, value) in [
        ("held", None),
        ("done, 40 bytes", Some(40)),
        ("done, 400 bytes", Some(400)),
    ] {
        let owner = super::granted_for(&store, key(), &settings).await;
        if let Some(size) = value {
            let value = tower_claim::store::Value::Kept(vec![7; size].into());
            let keep = Duration::from_secs(60);
            let _ = store
                .finish(tower_claim::store::FinishRequest { owner, value, keep })
                .await
                .unwrap();
        }
        let bytes: u64 = redis::cmd("MEMORY")
            .arg("USAGE")
            .arg(store.name_of(&owner.key))
            .query_async(&mut raw)
            .await
            .unwrap();
        println!("{what}: {bytes} bytes");
    }
    let since = Instant::now();
    let page = tower_claim::ClaimAdmin::scan(&store, None, 1000)
        .await
        .unwrap();
    let all: u64 = redis::cmd("DBSIZE").query_async(&mut raw).await.unwrap();
    println!(
        "a page of {} out of {all} keys: {:?}",
        page.records.len(),
        since.elapsed()
    );
    let beats: Vec<_> = page
        .records
        .iter()
        .take(128)
        .map(|view| tower_claim::store::Beat {
            owner: tower_claim::store::Owner {
                key: view.key,
                nonce: view.nonce,
                token: view.token,
            },
            progress: 1,
        })
        .collect();
    let _ = store.renew(&beats).await.unwrap();
    let since = Instant::now();
    let _ = store.renew(&beats).await.unwrap();
    println!("a renewal of {} holds: {:?}", beats.len(), since.elapsed());
}
