//! The store as a whole: bounds, waiting, several keys, threads.

mod bounds;
mod fence;
mod plain_list;
mod threads;
mod waiting;

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
