//! Owners that come too late.

use tower_claim::testing::{Fault, Operation};

use super::{lapsing, spawn};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_late_run_cannot_overwrite_who_took_over() {
    let app = App::new();
    let layer = lapsing(&app).build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    let slow = ask.clone().flags("delay=600");
    let a = spawn(&service, slow.clone());
    tokio::time::sleep(ms(300)).await;
    let b = spawn(&service, slow);
    tokio::time::sleep(ms(301)).await;
    // A is done and was not accepted: B holds the key.
    let a = a.await.unwrap();
    a.assert_refused(409, "in-progress");
    tokio::time::sleep(ms(400)).await;
    let b = b.await.unwrap();
    b.assert_fresh(201);
    assert!(b.text().contains("\"n\":2"));
    ask.send(&service).await.assert_replay_of(&b);
    let counts = layer.counts();
    assert_eq!(
        (app.effects(), counts.takeovers, counts.superseded),
        (2, 1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn the_caller_of_a_late_run_gets_the_answer_of_the_winner() {
    let app = App::new();
    let service = app.under(&lapsing(&app).build().unwrap());
    let ask = post("/orders").key("k");
    let a = spawn(&service, ask.clone().flags("delay=1000"));
    tokio::time::sleep(ms(300)).await;
    let b = ask.send(&service).await;
    b.assert_fresh(201);
    a.await.unwrap().assert_replay_of(&b);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_that_streams_never_looks_whole() {
    for (end, flags) in [
        ("told by the last frame", "nolen&ends&size=30&chunks=3"),
        ("told afterwards", "nolen&size=30&chunks=3"),
        ("over the cap", "nolen&size=300&chunks=3"),
    ] {
        let app = App::new();
        let layer = lapsing(&app).max_response_body(100).build().unwrap();
        let service = app.under(&layer);
        let ask = post("/orders").key("k");
        let a = spawn(
            &service,
            ask.clone()
                .flags(&format!("delay=600&chunk_delay=5&{flags}")),
        );
        tokio::time::sleep(ms(300)).await;
        let b = spawn(&service, ask.clone().flags("delay=600"));
        let a = soon(a).await.unwrap();
        assert_eq!(a.status, 201, "its head was out: {end}");
        assert!(
            a.body.as_ref().is_err_and(|e| e.contains("cut off")),
            "{end}: {a:?}"
        );
        let b = soon(b).await.unwrap();
        b.assert_fresh(201);
        ask.send(&service).await.assert_replay_of(&b);
    }
}

/// Nobody came back for so long that the key was free, and was then used for something else.
#[tokio::test(start_paused = true)]
async fn the_caller_of_a_late_run_is_never_answered_with_anothers_payload() {
    let app = App::new();
    let layer = lapsing(&app).unfinished_keep(ms(200)).build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    let late = spawn(&service, ask.clone().flags("delay=600"));
    let later = spawn(&service, post("/orders").key("k2").flags("delay=600"));
    tokio::time::sleep(ms(500)).await;
    let other = ask.clone().body("other").send(&service).await;
    other.assert_fresh(201);
    let _busy = spawn(
        &service,
        post("/orders").key("k2").body("other").flags("delay=1000"),
    );
    late.await.unwrap().assert_refused(422, "key-reused");
    later.await.unwrap().assert_refused(422, "key-reused");
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_tells_a_late_run_of_the_winner_all_the_same() {
    let app = App::new();
    let service = app.under(&lapsing(&app).build().unwrap());
    let ask = post("/orders").key("k");
    let late = spawn(&service, ask.clone().flags("delay=1000"));
    tokio::time::sleep(ms(300)).await;
    let winner = ask.send(&service).await;
    winner.assert_fresh(201);
    app.store
        .faults()
        .set_for(Operation::Watch, Fault::Delay(ms(150)));
    late.await.unwrap().assert_replay_of(&winner);
}

#[tokio::test(start_paused = true)]
async fn the_caller_of_a_late_run_is_told_of_an_answer_that_was_not_kept_as_a_repeat_is() {
    let app = App::new();
    let layer = lapsing(&app).max_response_body(20).on_not_kept(async |_| {
        let see = http::Response::builder().status(303);
        see.body(bytes::Bytes::from_static(b"see there")).ok()
    });
    let service = app.under(&layer.build().unwrap());
    let ask = post("/orders").key("k");
    let late = spawn(&service, ask.clone().flags("delay=1000"));
    tokio::time::sleep(ms(300)).await;
    let winner = ask.clone().flags("size=50").send(&service).await;
    winner.assert_fresh(201);
    for told in [ask.send(&service).await, late.await.unwrap()] {
        assert_eq!((told.status.as_u16(), told.text()), (303, "see there"));
        assert!(told.is_replay());
    }
}
