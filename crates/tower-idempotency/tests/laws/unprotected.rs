//! A layer that is told to go on without its store.

use tower_claim::LapsePolicy;
use tower_claim::testing::{Fault, Operation};
use tower_idempotency::{OnBusy, OnStoreDown, Reconciled};

use crate::support::*;

fn status(answer: &Answer) -> Option<&str> {
    answer.headers.get("idempotency-status")?.to_str().ok()
}

#[tokio::test(start_paused = true)]
async fn told_to_go_on_without_its_store_it_says_so() {
    let app = App::new();
    let layer = app.builder().on_store_down(OnStoreDown::RunUnprotected);
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    assert_eq!(status(first.assert_fresh(201)), None);

    for fault in [Fault::Down, Fault::LoseReply(1_000)] {
        app.store.faults().set_for(Operation::Claim, fault);
        let open = ask.send(&service).await;
        assert_eq!(status(open.assert_fresh(201)), Some("unprotected"));
    }
    assert_eq!((app.effects(), layer.counts().unprotected), (3, 2));
    assert_eq!(layer.counts().store_failures, 0, "nothing was refused");

    app.store.faults().set_for(Operation::Claim, Fault::Ok);
    ask.send(&service).await.assert_replay_of(&first);
}

#[tokio::test(start_paused = true)]
async fn what_a_running_store_refuses_does_not_run() {
    let app = App::new();
    let small = tower_claim::MemoryStore::builder()
        .clock(app.clock.clone())
        .max_records(1)
        .build()
        .unwrap();
    let layer = tower_idempotency::IdempotencyLayer::builder(small)
        .clock(app.clock.clone())
        .run_on(tower_claim::RunOn::Task)
        .on_store_down(OnStoreDown::RunUnprotected)
        .build()
        .unwrap();
    let service = app.under(&layer);
    let mut refused = 0;
    for n in 0..50 {
        let answer = post("/orders").key(&format!("k{n}")).send(&service).await;
        if answer.status != 201 {
            answer.assert_refused(503, "store-unavailable");
            refused += 1;
        }
    }
    assert!(refused > 0, "it never was full");
    assert_eq!(app.effects(), 50 - refused);
    // What has no key, or a bad one, is as ever.
    let bad = post("/orders").key("a,b").send(&service).await;
    bad.assert_refused(400, "key-invalid");
}

#[tokio::test(start_paused = true)]
async fn who_has_met_the_first_run_does_not_run_beside_it() {
    let app = App::new();
    let layer = app.builder().on_busy(OnBusy::Wait(ms(5_000)));
    let layer = layer.on_store_down(OnStoreDown::RunUnprotected);
    let service = app.under(&layer.build().unwrap());
    let ask = post("/orders").key("k");
    let run = |flags: &str| {
        let (service, ask) = (service.clone(), ask.clone().flags(flags));
        tokio::spawn(async move { ask.send(&service).await })
    };
    let first = run("delay=1000&status=503");
    tokio::time::sleep(ms(1)).await;
    let repeat = run("");
    tokio::time::sleep(ms(1)).await;
    app.store.faults().set_for(Operation::Claim, Fault::Down);
    first.await.unwrap().assert_fresh(503);
    repeat
        .await
        .unwrap()
        .assert_refused(503, "store-unavailable");
    assert_eq!(app.effects(), 1);
}

#[test]
fn it_does_not_go_with_work_that_must_not_run_twice() {
    let app = App::new();
    let open = || app.builder().on_store_down(OnStoreDown::RunUnprotected);
    let hold = open().on_lapse(LapsePolicy::Hold).build();
    let asks = open()
        .reconcile(app.store.inner().clone(), async |_| Reconciled::Unknown)
        .build();
    for refused in [hold, asks] {
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("on_store_down"), "{why}");
    }
}
