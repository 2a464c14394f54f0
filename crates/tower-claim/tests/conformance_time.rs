//! On real time a law is judged only when it kept its steps: never by luck.
#![cfg(feature = "conformance")]

use std::time::Duration;

use tower_claim::conformance::{Suite, Time, Verdict};
use tower_claim::testing::{Fault, FaultStore, Operation};
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
    store.faults().set(Fault::Delay(Duration::from_millis(200)));
    // Late at its only step, and late before the last; also in the larger steps of a retry.
    for law in ["a_free_key_is_granted", LAW] {
        let suite = Suite::new(time()).only(law);
        let report = suite.claim_store(async || store.clone()).await;
        assert_eq!(report.outcomes()[0].verdict, Verdict::Stalled, "{report}");
        assert!(!report.is_ok(), "that is no success");
    }
}

/// The first claim arrives after two and a half units, so that its lease still stands when the law expects
/// it to have lapsed. That is the machine's fault.
#[tokio::test]
async fn a_slow_step_is_not_held_against_the_store() {
    let store = FaultStore::new(MemoryStore::new());
    let faults = store.faults();
    faults.set(Fault::Delay(Duration::from_millis(100)));
    let suite = Suite::new(time()).only("a_lapsed_hold_is_taken_over");
    let only_the_first = async {
        while faults.calls().of(Operation::Claim) == 0 {
            tokio::task::yield_now().await;
        }
        faults.set(Fault::Ok);
    };
    let (report, ()) = tokio::join!(suite.claim_store(async || store.clone()), only_the_first);
    report.assert();
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
