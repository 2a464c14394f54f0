//! What a file, a disk and a clock can do to a store.

mod churn;
mod disk;
mod files;
mod golden;
mod guard;
mod odd;
mod purged;
mod restart;

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tower_claim::store::{ClaimRequest, Claimed, Finish, FinishRequest, Grant, Owner, Value};
use tower_claim::testing::ManualClock;
use tower_claim::{
    ClaimStore, Key, LapsePolicy, Namespace, Nonce, OsEntropy, Settings, StoreError, Token, Use,
};

use crate::{RedbStore, RedbStoreBuilder};

const KEEP: Duration = Duration::from_secs(3600);

fn key(n: u32) -> Key {
    Key::builder(Use::Lease, &Namespace::default())
        .part(n.to_be_bytes())
        .build()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn by_hand(clock: &ManualClock) -> RedbStoreBuilder {
    RedbStore::builder().clock(Arc::new(clock.clone()))
}

/// Lease 10 s, cooling 3 s, unfinished keep 100 s.
fn terms(on_lapse: LapsePolicy) -> Settings {
    let mut settings = Settings::new(secs(10));
    settings.cooling = secs(3);
    settings.on_lapse = on_lapse;
    settings.unfinished_keep = secs(100);
    settings
}

async fn claim(store: &RedbStore, n: u32) -> Result<Claimed, StoreError> {
    claim_under(store, n, &terms(LapsePolicy::TakeOver)).await
}

async fn claim_under(
    store: &RedbStore,
    n: u32,
    settings: &Settings,
) -> Result<Claimed, StoreError> {
    let nonce = Nonce::draw(&OsEntropy);
    claim_as(store, n, nonce, settings).await
}

async fn claim_as(
    store: &RedbStore,
    n: u32,
    nonce: Nonce,
    settings: &Settings,
) -> Result<Claimed, StoreError> {
    let request = ClaimRequest {
        key: key(n),
        nonce,
        fingerprint: None,
        settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(secs(60)),
    };
    store.claim(request).await
}

#[track_caller]
fn granted(claimed: Result<Claimed, StoreError>) -> Grant {
    match claimed {
        Ok(Claimed::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn finish(store: &RedbStore, owner: Owner) -> Result<Finish, StoreError> {
    let value = Value::Kept(b"done".as_slice().into());
    let keep = KEEP;
    store.finish(FinishRequest { owner, value, keep }).await
}

/// Claims and finishes a key.
async fn done(store: &RedbStore, n: u32) -> Token {
    let nonce = Nonce::draw(&OsEntropy);
    let settings = terms(LapsePolicy::TakeOver);
    let token = granted(claim_as(store, n, nonce, &settings).await).token;
    let key = key(n);
    let finished = finish(store, Owner { key, nonce, token }).await;
    assert_eq!(finished.unwrap(), Finish::Finished);
    token
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}
