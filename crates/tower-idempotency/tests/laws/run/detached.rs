//! Handlers outlive their callers, in bounded numbers, until a drain.

use futures_util::future::{BoxFuture, join_all};
use tower_claim::testing::{Fault, Operation};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_handler_runs_on_when_its_caller_hangs_up() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    let slow = ask.clone().flags("delay=1000");
    assert!(
        tokio::time::timeout(ms(100), slow.send(&service))
            .await
            .is_err()
    );
    assert_eq!((app.effects(), layer.in_flight()), (1, 1));
    ask.send(&service).await.assert_refused(409, "in-progress");
    tokio::time::sleep(ms(901)).await;
    let replay = ask.send(&service).await;
    assert!(replay.is_replay());
    assert_eq!(replay.text(), "{\"n\":1,\"read\":2}");
    assert_eq!((app.effects(), layer.in_flight()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_streamed_answer_is_kept_when_its_caller_hangs_up() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders")
        .key("k")
        .flags("size=30&chunks=3&chunk_delay=100&nolen");
    assert!(
        tokio::time::timeout(ms(150), ask.send(&service))
            .await
            .is_err()
    );
    tokio::time::sleep(ms(100)).await;
    let replay = ask.send(&service).await;
    assert!(replay.is_replay());
    assert_eq!(replay.text().len(), 30);
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_than_may() {
    let app = App::new();
    let service = app.under(&app.builder().max_in_flight(2).build().unwrap());
    let ask = |n: u32| post("/orders").key(&format!("k{n}")).flags("delay=100");
    let asks: Vec<_> = (0..5).map(ask).collect();
    let all = join_all(asks.iter().map(|a| a.send(&service))).await;
    let refused: Vec<_> = all.iter().filter(|a| a.status != 201).collect();
    assert_eq!((refused.len(), app.effects()), (3, 2));
    for answer in refused {
        answer.assert_refused(503, "overloaded");
        assert!(answer.retry_after().is_some());
    }
    // The refused keys are free: nothing of them was left behind.
    for ask in &asks {
        assert_eq!(ask.send(&service).await.status, 201);
    }
    assert_eq!(app.effects(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_handlers_and_refuses_new_ones() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let service = app.under(&layer);
    let slow = post("/orders").key("k").flags("delay=1000");
    assert!(
        tokio::time::timeout(ms(10), slow.send(&service))
            .await
            .is_err()
    );
    assert!(!layer.drain(ms(100)).await, "the handler still runs");
    post("/orders")
        .key("k2")
        .send(&service)
        .await
        .assert_refused(503, "shutting-down");
    post("/orders").send(&service).await.assert_fresh(201);
    assert!(layer.drain(ms(1000)).await);
    assert_eq!(layer.in_flight(), 0);
}

tokio::task_local! {
    static USER: &'static str;
}

/// Takes the caller's user along.
struct CarryUser;

impl tower_claim::Carry for CarryUser {
    fn carry(&self, work: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        match USER.try_with(|user| *user) {
            Ok(user) => Box::pin(USER.scope(user, work)),
            Err(_) => work,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_told_to_be_carried_reaches_the_detached_handler() {
    let app = App::new();
    let layer = app.builder().carry(CarryUser).build().unwrap();
    let handler = tower::service_fn(|_: http::Request<tower_idempotency::RequestBody<Body>>| {
        let user = USER.try_with(|user| *user).unwrap_or("nobody");
        async move { Ok::<_, std::io::Error>(http::Response::new(body_of(user))) }
    });
    let service = tower::Layer::layer(&layer, tower::util::BoxCloneSyncService::new(handler));
    let ask = post("/orders").key("k");
    let answer = USER.scope("ada", ask.send(&service)).await;
    assert_eq!(answer.text(), "ada");
    let other = post("/orders").key("k2").send(&service).await;
    assert_eq!(other.text(), "nobody");
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_a_claim_under_way() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let service = app.under(&layer);
    let faults = app.store.faults();
    faults.set_for(Operation::Claim, Fault::Delay(ms(500)));
    let ask = post("/orders").key("k");
    let asking = tokio::spawn({
        let (service, ask) = (service.clone(), ask.clone());
        async move { ask.send(&service).await }
    });
    tokio::time::sleep(ms(100)).await;
    assert!(layer.drain(ms(60_000)).await);
    let calls = faults.calls();
    assert!(
        asking.is_finished(),
        "a process that ends now leaves the key taken"
    );
    let answer = asking.await.unwrap();
    tokio::time::sleep(ms(60_000)).await;
    assert_eq!(faults.calls(), calls, "nothing comes after a drain");
    answer.assert_fresh(201);
}
