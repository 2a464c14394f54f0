//! What lies in etcd: foreign and future records, and etcd's own housekeeping.

use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::{Client, GetOptions, Txn, TxnOp};
use system_tests::relay::{Relay, Way};
use system_tests::servers::Etcd;
use tower_claim::store::{
    Beat, Claimed, Finish, FinishRequest, Release, ReleaseRequest, Renewed, Value,
};
use tower_claim::{ClaimAdmin, ClaimStore, Settings, StoreError};
use tower_claim_etcd::EtcdStore;

use super::bench::{ask, endpoints, hold, hold_by, key, nonce, prefix, server, store_on, until};

async fn client() -> Client {
    Client::connect(endpoints(server()), None)
        .await
        .expect("etcd")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_record_is_an_error_with_the_keys_prefix() {
    let prefix = prefix();
    let store = store_on(endpoints(server()), &prefix).await;
    let mut client = client().await;
    for bad in [
        &b"foreign"[..],
        b"",
        b"twc\x02of a future version",
        b"twc\x01\x00",
    ] {
        let one = key();
        client
            .put(format!("{prefix}/k/{one}/r"), bad, None)
            .await
            .expect("put");
        let garbled = |error: &StoreError| matches!(error, StoreError::Garbled { key_prefix, .. } if *key_prefix == one.prefix());
        let seen = store.peek(one).await;
        assert!(seen.as_ref().is_err_and(garbled), "{bad:?}: {seen:?}");
        let scanned = store.scan(Some(one), 1).await;
        assert!(scanned.as_ref().is_err_and(garbled), "{bad:?}: {scanned:?}");
        client
            .delete(format!("{prefix}/k/{one}/r"), None)
            .await
            .expect("deleted");
    }
}

/// How many keys of others there are to pass is not in our hands: each read has the call timeout of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_may_take_longer_than_one_call() {
    // Of its own: a compaction in the midst, as below, ends a scan.
    let (server, prefix) = (Etcd::start(), prefix());
    let relay = Relay::to(server.addresses()[0].clone());
    let builder = EtcdStore::builder().endpoints([format!("http://{}", relay.address())]);
    let limit = Duration::from_secs(2);
    let builder = builder.prefix(&prefix).call_timeout(limit);
    let store = builder.connect().await.expect("etcd answers");
    let client = Client::connect(endpoints(&server), None).await;
    let mut client = client.expect("etcd");
    let foreign: Vec<_> = (0..5200).map(|nth| format!("{prefix}/k/!{nth}")).collect();
    for some in foreign.chunks(100) {
        let puts = some.iter().map(|path| TxnOp::put(&path[..], "", None));
        let txn = Txn::new().and_then(puts.collect::<Vec<_>>());
        client.txn(txn).await.expect("put");
    }
    let one = hold(&store, key(), Duration::from_secs(60)).await;
    relay.set(Way::Delay {
        requests: Duration::ZERO,
        replies: limit / 6,
    });
    let began = Instant::now();
    let page = store.scan(None, 1).await.expect("scanned");
    assert!(began.elapsed() > limit, "it was no long scan");
    assert_eq!(page.records.len(), 1);
    assert_eq!(page.records[0].key, one.key);
}

/// A page of etcd that holds nothing of ours is not the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_finds_all_records_between_hundreds_of_foreign_keys() {
    let prefix = prefix();
    let store = store_on(endpoints(server()), &prefix).await;
    let mut client = client().await;
    let mut keys = Vec::new();
    for _ in 0..7 {
        keys.push(hold(&store, key(), Duration::from_secs(60)).await.key);
    }
    keys.sort_unstable();
    let mut foreign = vec![Vec::new()];
    for nth in 0..100 {
        // Before, behind and between all records; siblings that a later version may write; no text at all.
        foreign[0].push(format!("{prefix}/k/!{nth}").into_bytes());
        foreign[0].push(format!("{prefix}/k/~{nth}").into_bytes());
        foreign[0].push([format!("{prefix}/k/").as_bytes(), &[0xff, nth]].concat());
        let mut between = Vec::new();
        for one in [keys[0], keys[3], keys[6]] {
            between.push(format!("{prefix}/k/{one}/later-{nth}").into_bytes());
            between.push(format!("{prefix}/k/{one}~{nth}").into_bytes());
        }
        foreign.push(between);
    }
    for some in foreign.concat().chunks(100) {
        let puts = some
            .iter()
            .map(|path| TxnOp::put(&path[..], "foreign", None));
        let txn = Txn::new().and_then(puts.collect::<Vec<_>>());
        client.txn(txn).await.expect("put");
    }
    // And a key of which no record is left, only what cools.
    let freed = key();
    let path = format!("{prefix}/k/{freed}/floor");
    let floor = 7_u64.to_be_bytes().to_vec();
    client.put(path, floor, None).await.expect("put");

    for limit in [1, 2, 3, 1000] {
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let page = store.scan(from, limit).await.expect("scanned");
            assert!(page.records.len() <= limit);
            found.extend(page.records.iter().map(|record| record.key));
            from = page.next;
            if from.is_none() {
                break;
            }
            assert_eq!(page.records.len(), limit, "a page that goes on is full");
        }
        assert_eq!(found, keys, "pages of {limit}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_and_defragmentation_disturb_nothing() {
    let prefix = prefix();
    let store = store_on(endpoints(server()), &prefix).await;
    let owner = hold(&store, key(), Duration::from_secs(20)).await;
    let before = hold(&store, key(), Duration::from_secs(20)).await;
    let watching = store.watch(before.key, before.token);
    let mut client = client().await;
    let work = async {
        let now = client
            .get(prefix.as_str(), None)
            .await
            .expect("etcd answers");
        let revision = now.header().expect("a header").revision();
        // Another test may have compacted further.
        let _ = client.compact(revision, None).await;
        client.defragment().await.expect("defragmented");
        let renewed = store
            .renew(&[Beat { owner, progress: 1 }])
            .await
            .expect("renewed");
        assert!(matches!(renewed[..], [Renewed::Renewed { .. }]));
        let release = ReleaseRequest {
            key: before.key,
            nonce: before.nonce,
            token: None,
            not_after: store.now().saturating_add(Duration::from_secs(5)),
        };
        store.release(release).await.expect("released")
    };
    let (watched, released) = tokio::join!(watching, work);
    assert_eq!(released, Release::Released);
    watched.expect("the watcher is told");
    let next = hold(&store, before.key, Duration::from_secs(20)).await;
    assert!(next.token > before.token);
}

/// Everything lies on a lease: a store nobody uses empties itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_in_the_end() {
    let prefix = prefix();
    let store = store_on(endpoints(server()), &prefix).await;
    let mut terms = Settings::new(Duration::from_secs(1));
    (terms.cooling, terms.min_hold) = (Duration::from_secs(1), Duration::from_secs(1));
    terms.unfinished_keep = Duration::from_secs(1);
    // Lapsed, finished, released, refused.
    hold_by(&store, key(), &terms).await;
    let finished = hold_by(&store, key(), &terms).await;
    let finish = FinishRequest {
        owner: finished,
        value: Value::Kept(Bytes::from_static(b"result")),
        keep: Duration::from_secs(1),
    };
    assert_eq!(store.finish(finish).await.ok(), Some(Finish::Finished));
    assert!(matches!(
        ask(&store, finished.key, nonce(), &terms).await,
        Claimed::Done(_)
    ));
    let released = hold_by(&store, key(), &terms).await;
    let release = ReleaseRequest {
        key: released.key,
        nonce: released.nonce,
        token: None,
        not_after: store.now().saturating_add(Duration::from_secs(1)),
    };
    store.release(release).await.expect("released");

    let mut client = client().await;
    let count = GetOptions::new().with_prefix().with_count_only();
    until("an empty store", async || {
        let left = client.get(prefix.as_str(), Some(count.clone())).await;
        left.expect("etcd answers").count() == 0
    })
    .await;
}
