//! The suite itself, tested: a plain reference store keeps every law; and for each law a store that breaks
//! one rule is kept, which the suite must fail by that law's name.
#![cfg(feature = "conformance")]
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod reference;
mod table;

use std::collections::HashSet;

use reference::{Reference, ReferenceFence};
use tower_claim::conformance::{self, Report, Suite, Time, Trouble, Verdict};
use tower_claim::testing::ManualClock;

/// Runs one entry point of the suite against a store with this flaw.
async fn report(entry: &str, suite: impl Fn(Time) -> Suite, flaw: &'static str) -> Report {
    let clock = ManualClock::new();
    let suite = suite(Time::Manual(clock.clone()));
    let store = async || Reference::new(clock.clone(), flaw);
    match entry {
        "claim_store" => suite.claim_store(store).await,
        "claim_many" => suite.claim_many(store).await,
        "claim_admin" => suite.claim_admin(store).await,
        _ => suite.fence_store(async || ReferenceFence::new(flaw)).await,
    }
}

#[tokio::test]
async fn the_reference_store_keeps_every_law() {
    for entry in ["claim_store", "claim_many", "claim_admin", "fence_store"] {
        let report = report(entry, Suite::new, "").await;
        println!("{entry}: {report}");
        report.assert();
        let skipped = |v: &Verdict| matches!(v, Verdict::Skipped(_));
        assert!(
            !report.outcomes().iter().any(|o| skipped(&o.verdict)),
            "{report}"
        );
    }
}

#[tokio::test]
async fn the_reference_store_keeps_every_law_behind_each_trouble() {
    for trouble in Trouble::ALL {
        for entry in ["claim_store", "claim_many", "claim_admin"] {
            let report = report(entry, |time| Suite::new(time).behind(trouble), "").await;
            println!("{trouble:?} {entry}: {report}");
            report.assert();
        }
    }
}

#[test]
fn every_law_has_a_store_that_breaks_it() {
    let kept: HashSet<_> = table::BROKEN.iter().map(|(law, _)| *law).collect();
    let missing: Vec<_> = conformance::laws()
        .filter(|(_, law)| !kept.contains(law))
        .collect();
    assert!(missing.is_empty(), "no broken store for {missing:#?}");
    let laws: HashSet<_> = conformance::laws().map(|(_, law)| law).collect();
    let unknown: Vec<_> = kept.difference(&laws).collect();
    assert!(unknown.is_empty(), "no such laws: {unknown:#?}");
    assert_eq!(
        laws.len(),
        conformance::laws().count(),
        "each law has a name of its own"
    );
}

/// A watcher that never answers is waited for: paused, that costs nothing.
#[tokio::test(start_paused = true)]
async fn the_suite_fails_each_broken_store_by_the_laws_name() {
    let mut missed = Vec::new();
    for (law, flaw) in table::BROKEN {
        let (entry, _) = conformance::laws().find(|(_, name)| name == law).unwrap();
        let report = report(entry, |time| Suite::new(time).only(*law), flaw).await;
        let caught =
            |o: &conformance::Outcome| o.law == *law && matches!(o.verdict, Verdict::Broken(_));
        match report.outcomes().iter().find(|o| caught(o)) {
            Some(outcome) => println!("{law} <- {flaw}: {:?}", outcome.verdict),
            None => missed.push((law, flaw, report.to_string())),
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}
