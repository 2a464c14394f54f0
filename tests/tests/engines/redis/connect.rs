//! Connecting: what is refused, in which words, and what the store then says of itself.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use system_tests::servers::Redis;
use tower_claim::store::{KeeperConnection, StoreTime};
use tower_claim::{ClaimStore, DynClaimStore};
use tower_claim_redis::{ConnectError, RedisStore};

use super::{builder, fresh, key, server};

const QUIET: [&str; 4] = ["--save", "", "--appendonly", "no"];

fn with(settings: &[&str]) -> Redis {
    Redis::with(&[&QUIET[..], settings].concat())
}

/// The one line that connecting fails with.
async fn line(url: impl Into<String>) -> String {
    let builder = RedisStore::builder()
        .url(url)
        .call_timeout(Duration::from_secs(2));
    let since = std::time::Instant::now();
    let error = builder.connect().await.expect_err("it must fail");
    assert!(since.elapsed() < Duration::from_secs(30), "it took long");
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("secret"), "{text:?}");
    text
}

#[tokio::test]
async fn a_redis_that_evicts_claims_is_refused_with_the_mend() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let redis = with(&["--maxmemory", "100mb", "--maxmemory-policy", policy]);
        let text = line(redis.url()).await;
        assert!(
            text.contains(policy) && text.contains("noeviction"),
            "{text}"
        );
        let allowed = RedisStore::builder().url(redis.url()).allow_eviction();
        assert!(allowed.connect().await.is_ok());
    }
    let redis = with(&["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"]);
    assert!(RedisStore::connect(redis.url()).await.is_ok());
}

#[tokio::test]
async fn what_is_no_redis_is_told_in_one_line() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let text = line(format!("redis://{address}")).await;
    assert!(
        text.contains(&address.to_string()) && text.contains("refused"),
        "{text}"
    );

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let web = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2).flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let text = line(format!("redis://{web}")).await;
    assert!(text.contains("Redis server"), "{text}");

    // PostgreSQL takes these bytes for a length beyond all limits, and hangs up without a word.
    let curt = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = curt.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in curt.incoming().take(2).flatten() {
            let _ = stream.read(&mut [0; 512]);
        }
    });
    let text = line(format!("redis://{other}")).await;
    assert!(text.contains("is it a Redis server"), "{text}");

    // Takes the connection and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = line(format!("redis://{}", mute.local_addr().unwrap())).await;
    assert!(text.contains("is it a Redis server"), "{text}");

    let text = line("http://127.0.0.1:1").await;
    assert!(
        text.contains("`url`") && text.contains("redis://"),
        "{text}"
    );
}

#[tokio::test]
async fn a_wrong_password_is_told_without_the_password() {
    let redis = with(&["--requirepass", "right"]);
    let url = |user: &str| format!("redis://{user}127.0.0.1:{}", redis.port());
    assert!(line(url(":secret@")).await.contains("password"));
    assert!(line(url("")).await.contains("password"));
    let store = RedisStore::connect(url(":right@")).await.unwrap();
    assert!(!format!("{store:?}").contains("right"));
}

#[tokio::test]
async fn a_replica_is_refused() {
    let primary = server().port().to_string();
    let replica = with(&["--replicaof", "127.0.0.1", &primary]);
    assert!(line(replica.url()).await.contains("replica"));
}

#[tokio::test]
async fn a_server_that_hides_itself_is_used_all_the_same() {
    let redis = with(&[
        "--user", "default", "on", "nopass", "~*", "&*", "+@all", "-info", "-config",
    ]);
    let store = RedisStore::connect(redis.url()).await.unwrap();
    assert!(!store.capabilities().durable, "it cannot be seen");
    assert!(store.peek(key()).await.unwrap().is_none());
    let sure = RedisStore::builder().url(redis.url()).durable_single_node();
    let text = sure.connect().await.unwrap_err().to_string();
    assert!(text.contains("INFO"), "{text}");
}

#[tokio::test]
async fn the_smallest_set_of_rights_is_enough() {
    let redis = with(&[
        "--user",
        "default",
        "off",
        "--user",
        "app",
        "on",
        ">right",
        "~mine:*",
        "&mine:*",
        "-@all",
        "+ping",
        "+eval",
        "+evalsha",
        "+time",
        "+hmget",
        "+hget",
        "+hset",
        "+hdel",
        "+hscan",
        "+exists",
        "+unlink",
        "+persist",
        "+pexpireat",
        "+publish",
        "+subscribe",
        "+scan",
    ]);
    let url = format!("redis://app:right@{}", redis.address());
    let text = line(&url).await;
    assert!(text.contains("`claim:*`"), "another prefix: {text}");
    let store = RedisStore::builder().url(&url).prefix("mine:");
    let store = store.connect().await.unwrap();
    let time = tower_claim::conformance::Time::Real {
        unit: Duration::from_millis(150),
        tolerance: Duration::from_millis(20),
    };
    let suite = tower_claim::conformance::Suite::new(time);
    suite.claim_store(async || store.clone()).await.assert();
    suite.fence_store(async || store.clone()).await.assert();
}

/// Both are asked for: a step is an EVALSHA, and an EVAL where the server does not know the script.
#[tokio::test]
async fn a_user_without_scripts_is_told_what_to_grant() {
    for missing in ["-eval", "-evalsha", "-time"] {
        let redis = with(&[
            "--user", "default", "on", "nopass", "~*", "&*", "+@all", missing,
        ]);
        let text = line(redis.url()).await;
        assert!(
            text.contains("+eval +evalsha +time ~claim:*"),
            "{missing}: {text}"
        );
    }
}

#[tokio::test]
async fn what_the_disk_keeps_is_in_the_capabilities() {
    let plain = RedisStore::connect(server().url()).await.unwrap();
    let capabilities = plain.capabilities();
    assert_eq!(capabilities.engine, "redis");
    assert!(!capabilities.durable && capabilities.may_forget());

    let snapshots = Redis::with(&["--save", "3600 1"]);
    let store = RedisStore::connect(snapshots.url()).await.unwrap();
    assert!(store.capabilities().durable && store.capabilities().may_forget());

    let lazy = Redis::with(&["--appendonly", "yes"]);
    let store = RedisStore::connect(lazy.url()).await.unwrap();
    assert!(store.capabilities().durable && store.capabilities().may_forget());
    let sure = RedisStore::builder().url(lazy.url()).durable_single_node();
    let text = sure.connect().await.unwrap_err().to_string();
    assert!(text.contains("appendfsync"), "{text}");

    let always = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let sure = RedisStore::builder()
        .url(always.url())
        .durable_single_node();
    let store = sure.connect().await.unwrap();
    assert!(store.capabilities().durable && !store.capabilities().may_forget());
}

#[tokio::test]
async fn the_table_of_promises_is_the_capabilities() {
    // As it comes out of the box: snapshots, no append-only file.
    let redis = Redis::with(&[]);
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let docs = include_str!("../../../../crates/tower-claim-redis/src/lib.rs");
    let table: String = docs
        .lines()
        .filter_map(|line| line.strip_prefix("/// |"))
        .map(|row| format!("|{row}\n"))
        .collect();
    assert_eq!(table.trim_end(), store.capabilities().to_string());
}

#[tokio::test]
async fn a_socket_serves_as_well() {
    let socket = server().socket();
    let url = format!("unix://{}", socket.display());
    let store = RedisStore::builder()
        .url(url)
        .prefix(fresh())
        .connect()
        .await
        .unwrap();
    assert!(store.peek(key()).await.unwrap().is_none());
    assert!(
        store.now() > StoreTime::from_micros(1_600_000_000_000_000),
        "Redis' own time is known"
    );
}

#[tokio::test]
async fn connections_of_the_users_own_are_used() {
    let client = redis::Client::open(server().url()).unwrap();
    let manager = client.get_connection_manager().await.unwrap();
    let alone = RedisStore::builder()
        .connection(manager.clone())
        .prefix(fresh());
    let alone = alone.connect().await.unwrap();
    assert_eq!(alone.capabilities().keeper, KeeperConnection::Shared);
    assert!(alone.peek(key()).await.unwrap().is_none());
    alone.keeper_store().await.unwrap();

    let multiplexed = client.get_multiplexed_async_connection().await.unwrap();
    let both = builder().connection(multiplexed).connect().await.unwrap();
    assert_eq!(both.capabilities().keeper, KeeperConnection::Own);
    assert!(
        both.keeper_store()
            .await
            .unwrap()
            .dyn_peek(key())
            .await
            .unwrap()
            .is_none()
    );
}

/// Its beats would find no hold to renew.
#[tokio::test]
async fn a_connection_that_leads_elsewhere_than_the_url_is_refused() {
    let client = redis::Client::open(server().url()).unwrap();
    let manager = client.get_connection_manager().await.unwrap();
    let other = Redis::start();
    let other_database = server().url().replace("/0", "/1");
    for url in [other.url(), other_database] {
        let mixed = builder().connection(manager.clone()).url(url);
        let text = mixed.connect().await.unwrap_err().to_string();
        assert!(
            text.contains("`connection`") && text.contains("database"),
            "{text}"
        );
    }
    let prefix = fresh();
    let same = RedisStore::builder()
        .connection(manager)
        .url(server().url());
    same.prefix(&prefix).connect().await.unwrap();
    let mut raw = super::raw().await;
    let left: Vec<String> = redis::cmd("KEYS")
        .arg(format!("{prefix}*"))
        .query_async(&mut raw)
        .await
        .unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn bad_settings_are_refused_with_their_names() {
    let refused =
        async |builder: tower_claim_redis::RedisStoreBuilder| match builder.connect().await {
            Err(ConnectError::Config(error)) => error.setting(),
            other => panic!("{other:?}"),
        };
    assert_eq!(refused(RedisStore::builder()).await, "url");
    assert_eq!(refused(builder().prefix("")).await, "prefix");
    assert_eq!(refused(builder().prefix("a{b}")).await, "prefix");
    assert_eq!(refused(builder().hash_tag("}")).await, "hash_tag");
    for odd in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        assert_eq!(refused(builder().call_timeout(odd)).await, "call_timeout");
        assert_eq!(refused(builder().poll_step(odd)).await, "poll_step");
    }
    assert_eq!(
        refused(builder().cluster(["redis://127.0.0.1"])).await,
        "cluster"
    );
    assert_eq!(
        refused(RedisStore::builder().cluster([server().url()])).await,
        "cluster"
    );
}
