//! A crash is not forgotten: whoever took over and came to nothing leaves the key to who is told of it, and no other
//! payload is let in beside its effects.

use std::io;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_claim::testing::{Fault, Operation};
use tower_claim::{Carry, Renewal};
use tower_idempotency::{IdempotentRun, RequestBody};

use crate::support::*;

/// A run under this key crashed; its lease has lapsed.
async fn crashed(app: &App, ask: &Ask) {
    let layer = app.builder().lease(ms(200)).renewal(Renewal::Off);
    let service = app.under(&layer.build().unwrap());
    let slow = ask.clone().flags("delay=100000000");
    tokio::spawn(async move { slow.send(&service).await });
    tokio::time::sleep(ms(300)).await;
}

/// The next one is told, with the same payload only.
async fn assert_is_known(app: &App, ask: &Ask) {
    let layer = app.builder().lease(ms(200)).tell_status().build().unwrap();
    let service = app.under(&layer);
    let other = ask.clone().body("another payload").send(&service).await;
    other.assert_refused(422, "key-reused");
    let next = ask.send(&service).await;
    next.assert_fresh(201);
    assert_eq!(next.headers["idempotency-status"], "taken-over");
}

#[tokio::test(start_paused = true)]
async fn whose_mark_was_not_sent_or_is_in_doubt_leaves_the_crash_it_took_over() {
    for lost in [Fault::Delay(ms(100_000)), Fault::LoseReply(1_000_000)] {
        let app = App::new();
        let ask = post("/orders").key("k");
        crashed(&app, &ask).await;
        let layer = app.builder().lease(ms(200)).build().unwrap();
        let service = app.under(&layer);
        let is_marked = matches!(lost, Fault::LoseReply(_));
        app.store.faults().set_for(Operation::Mark, lost);
        let failing = ask.clone().flags("commit").request();
        let failed = tower::ServiceExt::oneshot(service.clone(), failing).await;
        assert!(failed.is_err());
        app.store.faults().set(Fault::Ok);
        tokio::time::sleep(ms(1000)).await;
        if is_marked {
            // By the record it may have done what cannot be done twice.
            let told = ask.send(&service).await;
            told.assert_refused(409, "outcome-unknown");
            let other = ask.clone().body("other").send(&service).await;
            other.assert_refused(422, "key-reused");
        } else {
            assert_is_known(&app, &ask).await;
        }
    }
}

/// Nothing was sent to the store, so nothing is in doubt.
#[tokio::test(start_paused = true)]
async fn a_mark_that_a_lost_claim_does_not_even_send_leaves_the_key_free() {
    for took_over in [false, true] {
        let app = App::new();
        let ask = post("/orders").key("k");
        if took_over {
            crashed(&app, &ask).await;
        }
        let layer = app.builder().lease(ms(200)).renewal(Renewal::Off);
        let handler = tower::service_fn(|request: Request<RequestBody<Body>>| async move {
            tokio::time::sleep(ms(300)).await;
            let run = request.extensions().get::<IdempotentRun>().unwrap();
            let marked = run.point_of_no_return().await;
            marked.map_err(io::Error::other)?;
            Ok::<_, io::Error>(Response::new(body_of("paid")))
        });
        let late = BoxCloneSyncService::new(handler);
        let late = layer.build().unwrap().layer(late);
        let failed = tower::ServiceExt::oneshot(late, ask.request()).await;
        assert!(failed.is_err());
        if took_over {
            assert_is_known(&app, &ask).await;
        } else {
            let next = ask.clone().body("mended").send(&app.service()).await;
            next.assert_fresh(201);
        }
    }
}

struct Panics;

impl Carry for Panics {
    fn carry(&self, _: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        panic!("told to")
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_took_over_and_is_dropped_before_it_began_leaves_the_crash() {
    let app = App::new();
    let ask = post("/orders").key("k");
    crashed(&app, &ask).await;
    let layer = app.builder().lease(ms(200)).carry(Panics);
    let service = app.under(&layer.build().unwrap());
    let dropped = {
        let (ask, service) = (ask.clone(), service.clone());
        tokio::spawn(async move { ask.send(&service).await })
    };
    assert!(dropped.await.is_err(), "it was carried nowhere");
    tokio::time::sleep(ms(300)).await;
    assert_is_known(&app, &ask).await;
}
