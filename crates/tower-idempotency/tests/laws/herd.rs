//! Many repeats wait, and the run they wait for ends without an answer for them: no herd.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use http::Response;
use tower_claim::testing::{Fault, Operation};
use tower_claim::{LapsePolicy, Renewal};
use tower_idempotency::{IdempotencyBuilder, OnBusy, Reconciled};

use crate::support::*;

const CROWD: usize = 200;

fn waiting(app: &App) -> IdempotencyBuilder {
    app.builder().on_busy(OnBusy::Wait(ms(60_000)))
}

/// A first run, the crowd that waits for it, and what all were answered. The store's calls are counted from the moment
/// when all wait.
async fn crowd(app: &App, service: &Service, first: &str, then: &str) -> (Answer, Vec<Answer>) {
    let ask = post("/orders").key("k");
    let (first, then) = (ask.clone().flags(first), ask.flags(then));
    let (first, (all, ())) = tokio::join!(first.send(service), async {
        tokio::time::sleep(ms(10)).await;
        tokio::join!(join_all((0..CROWD).map(|_| then.send(service))), async {
            tokio::time::sleep(ms(50)).await;
            let calls = app.store.faults().reset_calls();
            assert_eq!(calls.of(Operation::Claim), 1 + CROWD as u64);
            // Slow enough for all to come to the store before the first of them is answered.
            let faults = app.store.faults();
            faults.set_for(Operation::Claim, Fault::Delay(ms(5)));
        })
    });
    (first, all)
}

fn calls(app: &App, operation: Operation) -> u64 {
    app.store.faults().calls().of(operation)
}

#[tokio::test(start_paused = true)]
async fn when_a_run_ends_without_an_outcome_one_of_the_crowd_claims() {
    let app = App::new();
    let layer = waiting(&app).build().unwrap();
    let service = app.under(&layer);
    let (first, all) = crowd(&app, &service, "delay=500&status=503", "delay=500").await;
    first.assert_fresh(503);
    let fresh: Vec<_> = all.iter().filter(|answer| !answer.is_replay()).collect();
    assert_eq!((fresh.len(), app.effects()), (1, 2));
    for replay in all.iter().filter(|answer| answer.is_replay()) {
        replay.assert_replay_of(fresh[0]);
    }
    assert_eq!(calls(&app, Operation::Claim), 1);
    assert_eq!(calls(&app, Operation::Watch), 1);
    assert_eq!(layer.waiting(), 0);
}

/// Each may try, one after the other.
#[tokio::test(start_paused = true)]
async fn a_crowd_whose_runs_all_fail_claims_once_for_each_run() {
    let app = App::new();
    let layer = waiting(&app).build().unwrap();
    let service = app.under(&layer);
    let (_, all) = crowd(&app, &service, "delay=500&status=503", "status=503").await;
    assert!(all.iter().all(|answer| answer.status == 503));
    assert_eq!(app.effects(), 1 + CROWD as u64);
    assert_eq!(calls(&app, Operation::Claim), CROWD as u64);
    assert_eq!(layer.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_asks_for_a_crowd_whose_run_has_an_unknown_outcome() {
    let app = App::new();
    let service = app.under(&waiting(&app).build().unwrap());
    let (_, all) = crowd(&app, &service, "commit&delay=500&panic", "").await;
    for answer in &all {
        answer.assert_refused(409, "outcome-unknown");
    }
    assert_eq!((app.effects(), calls(&app, Operation::Claim)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_takes_over_for_a_crowd_when_a_run_lapses() {
    let app = App::new();
    let layer = waiting(&app).lease(ms(1000)).renewal(Renewal::Off);
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    let (first, all) = crowd(&app, &service, "delay=5000", "delay=100").await;
    let fresh: Vec<_> = all.iter().filter(|answer| !answer.is_replay()).collect();
    assert_eq!((fresh.len(), app.effects()), (1, 2));
    first.assert_replay_of(fresh[0]);
    assert_eq!(layer.counts().takeovers, 1);
    // A watch may tell of the lapse a moment before a claim may take over.
    assert!((1..=3).contains(&calls(&app, Operation::Claim)));
}

#[tokio::test(start_paused = true)]
async fn another_asks_where_the_one_who_had_the_turn_hangs_up() {
    let app = App::new();
    let service = app.under(&waiting(&app).build().unwrap());
    let ask = post("/orders").key("k");
    let first = ask.clone().flags("delay=500&status=503");
    let leaves = async {
        tokio::time::sleep(ms(10)).await;
        // The first to wait has the first turn: it leaves while it asks.
        tokio::time::timeout(ms(600), ask.send(&service)).await
    };
    let stays = async {
        tokio::time::sleep(ms(20)).await;
        ask.send(&service).await
    };
    let slow = async {
        tokio::time::sleep(ms(400)).await;
        let faults = app.store.faults();
        faults.set_for(Operation::Claim, Fault::Delay(ms(300)));
    };
    let (_, left, stayed, ()) = tokio::join!(first.send(&service), leaves, stays, slow);
    assert!(left.is_err(), "it asked, and left before it was told");
    stayed.assert_fresh(201);
    assert_eq!(app.effects(), 2);
}

/// The time of each who waits goes on while another asks.
#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_told_for_one_who_asks() {
    let app = App::new();
    let layer = app.builder().on_busy(OnBusy::Wait(ms(1000)));
    let service = app.under(&layer.build().unwrap());
    let ask = post("/orders").key("k");
    let first = ask.clone().flags("delay=500&status=503");
    let slow = async {
        tokio::time::sleep(ms(400)).await;
        let faults = app.store.faults();
        faults.set_for(Operation::Claim, Fault::Delay(ms(1500)));
    };
    let asked = async {
        tokio::time::sleep(ms(10)).await;
        let timed = async || {
            let begin = tokio::time::Instant::now();
            (ask.send(&service).await, begin.elapsed())
        };
        tokio::join!(timed(), timed())
    };
    let (_, (one, other), ()) = tokio::join!(first.send(&service), asked, slow);
    let (asks, waits) = if one.0.status == 201 {
        (one, other)
    } else {
        (other, one)
    };
    asks.0.assert_fresh(201);
    waits.0.assert_refused(409, "in-progress");
    assert_eq!(waits.1, ms(1000));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_the_one_who_asks_fails_the_crowd_at_once() {
    let app = App::new();
    let service = app.under(&waiting(&app).build().unwrap());
    let down = async {
        tokio::time::sleep(ms(400)).await;
        app.store.faults().set_for(Operation::Claim, Fault::Down);
    };
    let crowd = crowd(&app, &service, "delay=500&status=503", "");
    let ((_, all), ()) = tokio::join!(crowd, down);
    for answer in &all {
        answer.assert_refused(503, "store-unavailable");
    }
    let claims = calls(&app, Operation::Claim);
    assert!(claims < 10, "{claims}: the tries of one");
}

/// Behind an unknown outcome the work is led on to another key: no herd there either, and the hook is asked once.
#[tokio::test(start_paused = true)]
async fn a_crowd_is_led_on_behind_an_unknown_outcome_without_a_herd() {
    let app = App::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let layer = waiting(&app).reconcile(app.store.inner().clone(), move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(ms(1000)).await;
            Reconciled::Done(Response::new("found".into()))
        }
    });
    let service = app.under(&layer.build().unwrap());
    let (_, all) = crowd(&app, &service, "commit&delay=500&panic", "").await;
    assert!(all.iter().all(|answer| answer.text() == "found"));
    assert_eq!((app.effects(), asked.load(Ordering::SeqCst)), (1, 1));
    let claims = calls(&app, Operation::Claim);
    assert!(claims <= 4, "{claims} claims");
}

/// Under Hold there is nothing to take over: all are told, by one claim.
#[tokio::test(start_paused = true)]
async fn one_asks_for_a_crowd_whose_run_lapsed_under_hold() {
    let app = App::new();
    let layer = waiting(&app).lease(ms(1000)).renewal(Renewal::Off);
    let service = app.under(&layer.on_lapse(LapsePolicy::Hold).build().unwrap());
    let (first, all) = crowd(&app, &service, "delay=5000", "").await;
    first.assert_fresh(201);
    for answer in &all {
        answer.assert_refused(409, "outcome-unknown");
    }
    assert!((1..=3).contains(&calls(&app, Operation::Claim)));
}
