//! On real time a law is judged only when it kept its steps: never by luck.
#![cfg(feature = "conformance")]

use std::time::Duration;

use tower_claim::conformance::{Suite, Time, Verdict};
use tower_claim::testing::{Fault, FaultStore};
use tower_claim::{MemoryStore, conformance};

const LAW: &str = "a_hold_does_not_lapse_early";

fn time() -> Time {
    Time::Real {
        unit: Duration::from_millis(40),
        tolerance: Duration::from_millis(10),
    }
}

#[tokio::test]
async fn an_engine_too_slow_for_the_unit_is_neither_right_nor_wrong() {
    let store = FaultStore::new(MemoryStore::new());
    store.faults().set(Fault::Delay(Duration::from_millis(50)));
    let report = Suite::new(time())
        .only(LAW)
        .claim_store(async || store.clone())
        .await;
    assert_eq!(report.outcomes()[0].verdict, Verdict::Stalled, "{report}");
    assert!(!report.is_ok(), "that is no success");
}

#[tokio::test]
async fn a_law_that_was_stalled_is_run_again() {
    let store = FaultStore::new(MemoryStore::new());
    let faults = store.faults();
    faults.set(Fault::Delay(Duration::from_millis(50)));
    let runs = std::cell::Cell::new(0);
    let make_store = async || {
        runs.set(runs.get() + 1);
        if runs.get() == 3 {
            faults.set(Fault::Ok);
        }
        store.clone()
    };
    let report = Suite::new(time()).only(LAW).claim_store(make_store).await;
    report.assert();
    assert!(runs.get() >= 3, "judged in run {}", runs.get());
}

#[tokio::test]
async fn a_run_without_laws_is_no_success() {
    let suite = Suite::new(time()).only("no law has this name");
    let report = suite.claim_store(async || MemoryStore::new()).await;
    assert!(!report.is_ok(), "{report}");
    assert!(conformance::laws().count() > 150);
}
