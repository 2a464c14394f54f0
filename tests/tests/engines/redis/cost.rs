//! What a claim costs Redis.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use system_tests::servers::Redis;
use tower_claim::store::{Finish, FinishRequest, ReleaseRequest, Value};
use tower_claim::{ClaimMany, ClaimStore, Settings};
use tower_claim_redis::RedisStore;

use super::{granted, key, nonce};

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

/// The figures of the docs.
#[tokio::test]
async fn a_record_takes_no_more_memory_than_is_said() {
    let redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let mut raw = connect(&redis).await;
    let mut settings = Settings::new(Duration::from_secs(20));
    settings.label = "payments".into();
    let mut takes = async |size: Option<usize>| -> usize {
        let owner = super::granted_for(&store, key(), &settings).await;
        if let Some(size) = size {
            let value = Value::Kept(vec![7; size].into());
            let keep = Duration::from_secs(60);
            let request = FinishRequest { owner, value, keep };
            assert_eq!(store.finish(request).await.unwrap(), Finish::Finished);
        }
        redis::cmd("MEMORY")
            .arg("USAGE")
            .arg(store.name_of(&owner.key))
            .query_async(&mut raw)
            .await
            .unwrap()
    };
    let (held, small) = (takes(None).await, takes(Some(40)).await);
    let large = takes(Some(400)).await;
    let set = redis.ask("CONFIG SET hash-max-listpack-value 4096");
    assert!(set.starts_with("+OK"), "{set}");
    let spared = takes(Some(400)).await;
    println!("held {held}, done {small}, done with 400 bytes {large}, packed {spared}");
    assert!(held < 700 && small < 700 + 40, "{held}, {small}");
    assert!((1000..2000 + 400).contains(&large), "{large}");
    assert!(spared < 700 + 2 * 400, "{spared}");
}

/// `cargo test … -- --ignored --nocapture`: figures, none of which a busy machine can promise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn figures() {
    let redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let mut raw = connect(&redis).await;
    for _ in 0..10_000 {
        granted(&store, key()).await;
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
