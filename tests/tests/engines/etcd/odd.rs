//! Odd callers, odd neighbours, moved clocks.

use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Client, PutOptions};
use tower_claim::store::{
    Beat, ClaimManyRequest, ClaimRequest, Claimed, ClaimedMany, Finish, FinishRequest, Marked,
    Renewed, StoreTime, Value,
};
use tower_claim::{ClaimAdmin, ClaimMany, ClaimStore, Settings, Token};

use super::bench::{ask, endpoints, hold, hold_by, key, nonce, prefix, server, store, store_on};

/// An owner that lost its answer counts its deadline from what it is told: never from a wall clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_a_lease_does_not_hang_on_wall_clocks() {
    let prefix = prefix();
    let store = store_on(endpoints(server()), &prefix).await;
    let terms = Settings::new(Duration::from_secs(20));
    let mut client = Client::connect(endpoints(server()), None)
        .await
        .expect("etcd");
    for hour in [-3_600_000_i64, 3_600_000] {
        let began = std::time::Instant::now();
        let owner = hold_by(&store, key(), &terms).await;
        // The record says when its owner renewed last, by the owner's wall clock: which was an hour off.
        let path = format!("{prefix}/k/{}/r", owner.key);
        let read = client.get(path.as_str(), None).await.expect("etcd answers");
        let kv = read.kvs().first().expect("the record");
        let (lease, mut bytes) = (kv.lease(), kv.value().to_vec());
        let last_beat = 90..98;
        let then = bytes[last_beat.clone()].try_into().map(u64::from_be_bytes);
        let then = then
            .expect("eight bytes")
            .checked_add_signed(hour)
            .expect("a time");
        bytes[last_beat].copy_from_slice(&then.to_be_bytes());
        let on = PutOptions::new().with_lease(lease);
        client.put(path, bytes, Some(on)).await.expect("put");

        tokio::time::sleep(Duration::from_secs(2)).await;
        match ask(&store, owner.key, owner.nonce, &terms).await {
            Claimed::Mine { rest, .. } => {
                let least = Duration::from_secs(18).saturating_sub(began.elapsed());
                assert!(
                    rest <= Duration::from_secs(18),
                    "{rest:?} of a lease two seconds old"
                );
                assert!(rest >= least, "{rest:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_sent_twice_or_beside_a_broken_record_is_a_beat() {
    let prefix = prefix();
    let store = store_on(endpoints(server()), &prefix).await;
    let (a, b) = (
        hold(&store, key(), Duration::from_secs(20)).await,
        hold(&store, key(), Duration::from_secs(20)).await,
    );
    let broken = hold(&store, key(), Duration::from_secs(20)).await;
    let mut client = Client::connect(endpoints(server()), None)
        .await
        .expect("etcd");
    let path = format!("{prefix}/k/{}/r", broken.key);
    client.put(path, "foreign", None).await.expect("put");
    let beat = |owner| Beat { owner, progress: 3 };
    let answers = store
        .renew(&[beat(a), beat(broken), beat(a), beat(b)])
        .await;
    let answers = answers.expect("renewed");
    assert!(
        matches!(
            answers[..],
            [
                Renewed::Renewed { .. },
                Renewed::Unsure,
                Renewed::Renewed { .. },
                Renewed::Renewed { .. }
            ]
        ),
        "{answers:?}"
    );
    let alone = store.renew(&[beat(broken)]).await;
    assert!(alone.is_err_and(|error| !error.is_retryable()));
    assert_eq!(store.renew(&[]).await.ok(), Some(Vec::new()));
}

/// Each has its own record, and the lease that a batch of beats shares outlives the first that ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_end_of_many_that_were_renewed_together_ends_no_other() {
    let store = store().await;
    let mut terms = Settings::new(Duration::from_secs(20));
    terms.cooling = Duration::from_secs(1);
    for keep in [Duration::from_secs(1), Duration::from_secs(100_000)] {
        terms.unfinished_keep = keep;
        let mut beats = Vec::new();
        for _ in 0..4 {
            let owner = hold_by(&store, key(), &terms).await;
            beats.push(Beat { owner, progress: 0 });
        }
        let yes = |answers: Vec<Renewed>| {
            let yes = |answer: &Renewed| matches!(answer, Renewed::Renewed { .. });
            assert!(answers.iter().all(yes), "{answers:?}");
        };
        yes(store.renew(&beats).await.expect("renewed"));
        yes(store.renew(&beats).await.expect("renewed"));
        let [finished, released, broken, last] = [0, 1, 2, 3].map(|n: usize| beats[n].owner);
        let done = FinishRequest {
            owner: finished,
            value: Value::Kept(Bytes::from_static(b"result")),
            keep: Duration::from_secs(60),
        };
        assert_eq!(store.finish(done).await.ok(), Some(Finish::Finished));
        let release = tower_claim::store::ReleaseRequest {
            key: released.key,
            nonce: released.nonce,
            token: Some(released.token),
            not_after: store.now().saturating_add(Duration::from_secs(5)),
        };
        store.release(release).await.expect("released");
        store
            .break_claim(broken.key, broken.token)
            .await
            .expect("broken");
        assert_eq!(store.mark(last).await.ok(), Some(Marked::Marked));
        // What was revoked behind the answers is gone by now.
        tokio::time::sleep(Duration::from_millis(300)).await;
        yes(store.renew(&beats[3..]).await.expect("renewed"));
        let seen = store
            .peek(last.key)
            .await
            .expect("etcd answers")
            .expect("it is held");
        assert!(seen.marked && !seen.lapsed, "{seen:?}");
        assert!(matches!(
            ask(&store, finished.key, nonce(), &terms).await,
            Claimed::Done(_)
        ));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_at_both_ends_and_odd_words_are_taken() {
    let store = store().await;
    let mut terms = Settings::new(Duration::ZERO);
    terms.unfinished_keep = Duration::ZERO;
    terms.label = "\u{0}é\u{202e}\u{1F980}\r\n".into();
    let owner = hold_by(&store, key(), &terms).await;
    let seen = store
        .peek(owner.key)
        .await
        .expect("etcd answers")
        .expect("held");
    assert_eq!(seen.label, terms.label);

    let long = Duration::MAX;
    let mut terms = Settings::new(long);
    (terms.cooling, terms.min_hold, terms.unfinished_keep) = (long, long, long);
    let one = key();
    let request = ClaimRequest {
        key: one,
        nonce: nonce(),
        fingerprint: None,
        settings: &terms,
        floor: Token::ZERO,
        not_after: StoreTime::NEVER,
    };
    let granted = store.claim(request).await.expect("etcd answers");
    let Claimed::Granted(grant) = granted else {
        panic!("{granted:?}");
    };
    let owner = tower_claim::store::Owner {
        key: one,
        nonce: request.nonce,
        token: grant.token,
    };
    let beat = Beat {
        owner,
        progress: u64::MAX,
    };
    let renewed = store.renew(&[beat]).await.expect("renewed");
    assert!(
        matches!(renewed[..], [Renewed::Renewed { .. }]),
        "{renewed:?}"
    );
    let done = FinishRequest {
        owner,
        value: Value::Tombstone,
        keep: long,
    };
    assert_eq!(store.finish(done).await.ok(), Some(Finish::Finished));

    let request = ClaimRequest {
        key: key(),
        nonce: nonce(),
        floor: Token::MAX,
        not_after: StoreTime::NEVER,
        ..request
    };
    let error = store.claim(request).await.expect_err("no token is left");
    assert!(!error.is_retryable(), "{error:?}");
}

/// More than the 4 MiB that gRPC takes for one answer by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_results_are_read_in_one_answer() {
    let store = store().await;
    let terms = Settings::new(Duration::from_secs(20));
    let mut keys = Vec::new();
    for _ in 0..6 {
        let owner = hold(&store, key(), Duration::from_secs(20)).await;
        let done = FinishRequest {
            owner,
            value: Value::Kept(Bytes::from(vec![7; 1 << 20])),
            keep: Duration::from_secs(20),
        };
        assert_eq!(store.finish(done).await.ok(), Some(Finish::Finished));
        keys.push(owner.key);
    }
    keys.sort_unstable();
    let page = store.scan(None, 1000).await.expect("scanned");
    assert_eq!(page.records.len(), 6);
    let request = ClaimManyRequest {
        keys: &keys,
        nonce: nonce(),
        settings: &terms,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(5)),
    };
    let answer = store.claim_many(request).await.expect("answered");
    assert!(matches!(
        answer,
        ClaimedMany::Refused {
            by: Claimed::Done(_),
            ..
        }
    ));
}
