//! The memory store keeps every law: plain and behind each trouble, by hand and on real time.
#![cfg(feature = "conformance")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::sync::Arc;
use std::time::Duration;

use tower_claim::conformance::{Report, Suite, Time, Trouble};
use tower_claim::testing::ManualClock;
use tower_claim::{MemoryFenceStore, MemoryStore};

async fn by_hand(trouble: Option<Trouble>) {
    let clock = ManualClock::new();
    let time = Time::Manual(clock.clone());
    let store = || {
        MemoryStore::builder()
            .clock(Arc::new(clock.clone()))
            .build()
            .unwrap()
    };
    every_power(time, trouble, store).await;
}

async fn on_real_time(trouble: Option<Trouble>) {
    let time = Time::Real {
        unit: Duration::from_millis(100),
        tolerance: Duration::from_millis(20),
    };
    every_power(time, trouble, MemoryStore::new).await;
}

async fn every_power(time: Time, trouble: Option<Trouble>, store: impl Fn() -> MemoryStore) {
    let suite = Suite::new(time);
    let suite = trouble.map_or(suite.clone(), |trouble| suite.behind(trouble));
    let store = async || store();
    held(suite.claim_store(store).await);
    held(suite.claim_many(store).await);
    held(suite.claim_admin(store).await);
}

/// Seen with `--nocapture`.
fn held(report: Report) {
    println!("{report}");
    report.assert();
}

#[tokio::test]
async fn laws_hold_by_hand() {
    by_hand(None).await;
}

#[tokio::test]
async fn laws_hold_by_hand_behind_each_trouble() {
    for trouble in Trouble::ALL {
        by_hand(Some(trouble)).await;
    }
}

#[tokio::test]
async fn laws_hold_on_real_time() {
    on_real_time(None).await;
}

#[tokio::test]
async fn laws_hold_on_real_time_when_calls_are_refused() {
    on_real_time(Some(Trouble::Refuse)).await;
}

#[tokio::test]
async fn laws_hold_on_real_time_when_calls_are_slow() {
    on_real_time(Some(Trouble::Delay)).await;
}

#[tokio::test]
async fn laws_hold_on_real_time_when_replies_are_lost() {
    on_real_time(Some(Trouble::LoseReply)).await;
}

#[tokio::test]
async fn laws_hold_on_real_time_when_calls_are_delivered_twice() {
    on_real_time(Some(Trouble::Repeat)).await;
}

#[tokio::test]
async fn the_memory_guard_keeps_every_law() {
    let time = Time::Manual(ManualClock::new());
    held(
        Suite::new(time)
            .fence_store(async || MemoryFenceStore::new())
            .await,
    );
}
