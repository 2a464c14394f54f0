//! A store that is down, slow, or loses its answers.

use std::time::Duration;

use tower_claim::testing::{Fault, Operation};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn without_its_store_the_layer_fails_closed() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    app.store.faults().set(Fault::Down);
    for ask in [ask.clone(), post("/orders").key("k2")] {
        let refused = ask.send(&service).await;
        refused.assert_refused(503, "store-unavailable");
        assert!(refused.retry_after().is_some());
    }
    post("/orders").send(&service).await.assert_fresh(201);
    assert_eq!(app.effects(), 2);
    app.store.faults().set(Fault::Ok);
    ask.send(&service).await.assert_replay_of(&first);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_is_no_rival_of_itself() {
    let app = App::new();
    let service = app.service();
    app.store
        .faults()
        .set_for(Operation::Claim, Fault::LoseReply(1));
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    first.assert_fresh(201);
    ask.send(&service).await.assert_replay_of(&first);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_arrive_twice_have_the_effect_of_one() {
    let app = App::new();
    let service = app.service();
    app.store.faults().set(Fault::Repeat(1000));
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    first.assert_fresh(201);
    ask.send(&service).await.assert_replay_of(&first);
    let failed = post("/orders").key("k2");
    failed
        .clone()
        .flags("status=503")
        .send(&service)
        .await
        .assert_fresh(503);
    failed.send(&service).await.assert_fresh(201);
    assert_eq!(app.effects(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_finish_whose_answer_is_lost_is_kept_all_the_same() {
    let app = App::new();
    let service = app.service();
    app.store
        .faults()
        .set_for(Operation::Finish, Fault::LoseReply(1));
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    first.assert_fresh(201);
    ask.send(&service).await.assert_replay_of(&first);
}

#[tokio::test(start_paused = true)]
async fn who_was_served_gets_its_answer_though_the_store_is_gone() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    let running = tokio::spawn({
        let (service, ask) = (service.clone(), ask.clone().flags("delay=1000"));
        async move { ask.send(&service).await }
    });
    tokio::time::sleep(ms(500)).await;
    app.store.faults().set(Fault::Down);
    let first = running.await.unwrap();
    first.assert_fresh(201);
    assert_eq!(layer.counts().unconfirmed, 1);
    ask.send(&service)
        .await
        .assert_refused(503, "store-unavailable");
    app.store.faults().set(Fault::Ok);
    // The keeper brings the outcome home.
    assert!(layer.drain(ms(30_000)).await);
    let reader = app.service();
    ask.send(&reader).await.assert_replay_of(&first);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_room_refuses_rather_than_forgets() {
    let app = App::new();
    let service = app.service();
    let small = tower_claim::MemoryStore::builder()
        .clock(app.clock.clone())
        .max_records(2)
        .build()
        .unwrap();
    let layer = tower_idempotency::IdempotencyLayer::builder(small)
        .clock(app.clock.clone())
        .run_on(tower_claim::RunOn::Task)
        .build()
        .unwrap();
    let full = app.under(&layer);
    let asks: Vec<_> = (0..50)
        .map(|n| post("/orders").key(&format!("k{n}")))
        .collect();
    let mut kept = Vec::new();
    for ask in &asks {
        let answer = ask.send(&full).await;
        if answer.status == 201 {
            kept.push((ask, answer));
        } else {
            answer.assert_refused(503, "store-unavailable");
        }
    }
    assert!(!kept.is_empty() && kept.len() < 50, "{}", kept.len());
    for (ask, first) in kept {
        ask.send(&full).await.assert_replay_of(&first);
    }
    drop(service);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_costs_its_first_requests_their_wait_and_the_others_nothing() {
    let app = App::new();
    let layer = app
        .builder()
        .circuit_breaker(2, Duration::from_secs(10))
        .build()
        .unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    let first = ask.send(&service).await;
    app.store
        .faults()
        .set(Fault::Delay(Duration::from_secs(600)));
    for key in ["k2", "k3"] {
        let refused = post("/orders").key(key).send(&service).await;
        refused.assert_refused(503, "store-unavailable");
    }
    let begun = tokio::time::Instant::now();
    for ask in [ask.clone(), post("/orders").key("k4")] {
        let refused = ask.send(&service).await;
        refused.assert_refused(503, "store-unavailable");
        assert!(refused.retry_after().is_some());
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    app.store.faults().set(Fault::Ok);
    tokio::time::sleep(Duration::from_secs(10)).await;
    ask.send(&service).await.assert_replay_of(&first);
    assert_eq!(app.effects(), 1);
}
