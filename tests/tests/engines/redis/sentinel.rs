//! A primary, its replica, and a sentinel that promotes it.

use std::time::{Duration, Instant};

use system_tests::servers::{Process, Redis, free_port};
use tower_claim::store::Claimed;
use tower_claim::{ClaimStore, DynClaimStore, Settings};
use tower_claim_redis::RedisStore;

use super::{ask, fresh, granted, key};

struct Watch {
    _process: Process,
    _folder: tempfile::TempDir,
    url: String,
}

/// Who watches a primary; with its password, where it has one.
fn sentinel(primary: &Redis, password: Option<&str>) -> Watch {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let file = folder.path().join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor m 127.0.0.1 {} 1\n\
         sentinel down-after-milliseconds m 400\nsentinel failover-timeout m 2000\n",
        folder.path().display(),
        primary.port(),
    );
    let login = password.map(|word| format!("sentinel auth-pass m {word}\n"));
    std::fs::write(&file, text + &login.unwrap_or_default()).unwrap();
    let program = std::env::var("VALKEY_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let file = file.display().to_string();
    let log = folder.path().join("log");
    Watch {
        _process: Process::start(None, &[&program, &file, "--sentinel"], &log),
        _folder: folder,
        url: format!("redis://127.0.0.1:{port}"),
    }
}

#[tokio::test]
async fn a_promoted_replica_is_found_and_tokens_rise() {
    let passwords = ["--requirepass", "right", "--masterauth", "right"];
    let mut primary = Redis::with(&[&["--save", ""], &passwords[..]].concat());
    let port = primary.port().to_string();
    let following = [
        "--save",
        "",
        "--replicaof",
        "127.0.0.1",
        &port,
        "--repl-diskless-sync-delay",
        "0",
    ];
    let replica = Redis::with(&[&following[..], &passwords[..]].concat());
    let watch = sentinel(&primary, Some("right"));
    let until = Instant::now() + Duration::from_secs(30);
    // The sentinel must know the replica before it can promote it.
    loop {
        let client = redis::Client::open(watch.url.as_str()).unwrap();
        if let Ok(mut raw) = client.get_multiplexed_async_connection().await {
            let known: Result<Vec<redis::Value>, _> = redis::cmd("SENTINEL")
                .arg("REPLICAS")
                .arg("m")
                .query_async(&mut raw)
                .await;
            if known.is_ok_and(|known| !known.is_empty()) {
                break;
            }
        }
        assert!(
            Instant::now() < until,
            "the sentinel does not see the replica"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let builder = RedisStore::builder()
        .sentinel([watch.url.clone()], "m")
        // The servers' password; its host is not asked.
        .url("redis://:right@nowhere.invalid")
        .prefix(fresh());
    let store = builder
        .call_timeout(Duration::from_secs(2))
        .connect()
        .await
        .unwrap();
    let keeper = store.keeper_store().await.unwrap();
    let kept = granted(&store, key()).await;
    let again = granted(&store, key()).await;
    let _ = store
        .release(super::release_of(&store, again))
        .await
        .unwrap();
    let url = format!("redis://:right@{}", primary.address());
    let client = redis::Client::open(url).unwrap();
    let mut raw = client.get_multiplexed_async_connection().await.unwrap();
    let mut copies = 0_i64;
    while copies < 1 {
        // `WAIT` counts writes of its own connection only.
        let _: () = redis::cmd("SET")
            .arg("x")
            .arg(1)
            .query_async(&mut raw)
            .await
            .unwrap();
        copies = redis::cmd("WAIT")
            .arg(1)
            .arg(100)
            .query_async(&mut raw)
            .await
            .unwrap();
        assert!(Instant::now() < until, "the replica does not follow");
    }

    primary.kill();
    let settings = Settings::new(Duration::from_secs(20));
    let until = Instant::now() + Duration::from_secs(60);
    let busy = loop {
        match store.claim(ask(&store, kept.key, &settings)).await {
            Ok(answer) => break answer,
            Err(error) => assert!(error.is_retryable() && Instant::now() < until, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(
        matches!(busy, Claimed::Busy(busy) if busy.token == kept.token),
        "the hold was copied"
    );
    let next = granted(&store, again.key).await;
    assert!(next.token > again.token, "tokens rise over a failover");
    // The keeper's own connection finds the new primary as well.
    while let Err(error) = keeper.dyn_peek(kept.key).await {
        assert!(error.is_retryable() && Instant::now() < until, "{error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(replica);
}

#[tokio::test]
async fn a_sentinel_named_as_a_server_is_refused_with_the_mend() {
    let primary = Redis::start();
    let watch = sentinel(&primary, None);
    let until = Instant::now() + Duration::from_secs(30);
    let text = loop {
        let text = RedisStore::connect(watch.url.clone())
            .await
            .unwrap_err()
            .to_string();
        // Until it listens.
        if !text.contains("refused") || Instant::now() > until {
            break text;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(text.contains("sentinel"), "{text}");
}
