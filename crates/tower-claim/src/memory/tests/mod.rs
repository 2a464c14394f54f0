//! The store as a whole: bounds, waiting, several keys, threads.

mod plain_list;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;

use super::*;
use crate::store::*;
use crate::testing::ManualClock;
use crate::*;

fn by_hand(builder: MemoryStoreBuilder) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    let store = builder.clock(Arc::new(clock.clone())).build().unwrap();
    (store, clock)
}

fn key(n: u64) -> Key {
    Key::builder(Use::Lease, &Namespace::default())
        .part(n.to_be_bytes())
        .build()
}

fn nonce(n: u64) -> Nonce {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    Nonce::from_bytes(bytes)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A call that does its work when it is first polled.
#[track_caller]
fn now<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    call.now_or_never().unwrap()
}

fn claim(store: &MemoryStore, k: u64, n: u64, settings: &Settings) -> Result<Claimed, StoreError> {
    now(store.claim(ClaimRequest {
        key: key(k),
        nonce: nonce(n),
        fingerprint: None,
        settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(secs(2)),
    }))
}

#[track_caller]
fn granted(claimed: Result<Claimed, StoreError>) -> Token {
    match claimed {
        Ok(Claimed::Granted(grant)) => grant.token,
        other => panic!("not granted: {other:?}"),
    }
}

fn finish(
    store: &MemoryStore,
    k: u64,
    n: u64,
    token: Token,
    body: Bytes,
    keep: Duration,
) -> Finish {
    let owner = Owner {
        key: key(k),
        nonce: nonce(n),
        token,
    };
    let value = Value::Kept(body);
    now(store.finish(FinishRequest { owner, value, keep })).unwrap()
}

fn release(store: &MemoryStore, k: u64, n: u64) -> Release {
    now(store.release(ReleaseRequest {
        key: key(k),
        nonce: nonce(n),
        token: None,
        not_after: store.now().saturating_add(secs(2)),
    }))
    .unwrap()
}

#[test]
fn the_table_of_promises_is_the_capabilities() {
    let store = MemoryStore::new();
    assert_eq!(
        store.capabilities(),
        Capabilities {
            engine: "memory",
            may_forget: false,
            durable: false,
            multi_key: MultiKey::Atomic,
            keeper: KeeperConnection::Own,
            time_unit: Duration::from_micros(1),
        }
    );
}

#[test]
fn released_keys_cost_nothing_for_long() {
    let (store, hand) = by_hand(MemoryStore::builder());
    let settings = Settings::new(secs(10));
    for k in 0..1000 {
        granted(claim(&store, k, k, &settings));
        assert_eq!(release(&store, k, k), Release::Released);
    }
    assert_eq!(store.stats().records, 1000);
    hand.advance(secs(3));
    // Each call clears a few of its shard.
    for k in 0..1000 {
        assert_eq!(now(store.peek(key(k))).unwrap(), None);
    }
    assert_eq!((store.stats().records, store.stats().bytes), (0, 0));
}

#[test]
fn random_keys_fill_the_store_and_no_finished_record_is_lost() {
    let limit = 10 << 20;
    let (store, hand) = by_hand(MemoryStore::builder().memory_limit(limit));
    let settings = Settings::new(secs(10));
    let mut finished = Vec::new();
    let mut refused = 0;
    for k in 0..60_000 {
        match claim(&store, k, k, &settings) {
            Ok(Claimed::Granted(grant)) => {
                let body = Bytes::from(vec![7; 100]);
                let done = finish(&store, k, k, grant.token, body, secs(3600));
                assert_eq!(done, Finish::Finished);
                finished.push(k);
            }
            Err(StoreError::Full) => refused += 1,
            other => panic!("{other:?}"),
        }
        assert!(store.stats().bytes <= limit);
    }
    assert!(refused > 1000, "{refused}");
    assert!(finished.len() > 20_000);
    let tombstones = finished
        .iter()
        .filter(|k| match claim(&store, **k, 1_000_000, &settings) {
            Ok(Claimed::Done(done)) => done.value == Value::Tombstone,
            other => panic!("finished and lost: {other:?}"),
        })
        .count();
    assert!(tombstones < 10, "{tombstones}");

    hand.advance(secs(3600));
    for k in 100_000..130_000 {
        granted(claim(&store, k, k, &settings));
    }
}

#[test]
fn where_there_is_no_room_for_the_body_the_outcome_is_kept() {
    let (store, _) = by_hand(MemoryStore::builder().memory_limit(4096).shards(1));
    let settings = Settings::new(secs(10));
    let token = granted(claim(&store, 1, 1, &settings));
    let done = finish(&store, 1, 1, token, Bytes::from(vec![0; 10_000]), secs(60));
    assert_eq!(done, Finish::Finished);
    match claim(&store, 1, 2, &settings) {
        Ok(Claimed::Done(done)) => assert_eq!(done.value, Value::Tombstone),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_watch_is_woken_by_each_end() {
    let store = MemoryStore::new();
    let settings = Settings::new(secs(10));
    let token = granted(claim(&store, 1, 1, &settings));
    let mut watch = Box::pin(store.watch(key(1), token));
    assert!((&mut watch).now_or_never().is_none());
    finish(&store, 1, 1, token, Bytes::from_static(b"x"), secs(10));
    assert!(matches!(watch.await, Ok(Watched::Done(_))));
    assert_eq!(store.stats().watched, 0);
}
