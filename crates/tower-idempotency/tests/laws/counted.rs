//! Each number counts what its name says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Response;
use tower_claim::{LapsePolicy, Renewal};
use tower_idempotency::Reconciled;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_asked_is_no_handler_that_was_started() {
    let app = App::new();
    let crashing = app.builder().lease(ms(200)).renewal(Renewal::Off);
    let crashing = crashing.on_lapse(LapsePolicy::Hold).build().unwrap();
    let crashing = app.under(&crashing);
    let ask = post("/orders").key("k");
    let slow = ask.clone().flags("delay=100000000");
    tokio::spawn(async move { slow.send(&crashing).await });
    tokio::time::sleep(ms(300)).await;

    let asked = Arc::new(AtomicU64::new(0));
    let layer = app.builder().lease(ms(200));
    let layer = layer.reconcile(app.store.inner().clone(), {
        let asked = Arc::clone(&asked);
        move |_| {
            let not_yet = asked.fetch_add(1, Ordering::SeqCst) < 2;
            std::future::ready(if not_yet {
                Reconciled::NotYet(ms(10))
            } else {
                Reconciled::RunAgain
            })
        }
    });
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    for _ in 0..2 {
        let not_yet = ask.send(&service).await;
        not_yet.assert_refused(409, "outcome-unknown");
        tokio::time::sleep(ms(10)).await;
    }
    ask.send(&service).await.assert_fresh(201);
    let counts = layer.counts();
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!((counts.runs, counts.takeovers), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_other_words_is_no_refusal() {
    let app = App::new();
    let layer = app.builder().max_response_body(10);
    let layer = layer.on_not_kept(async |_| Some(Response::new("see there".into())));
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k").flags("size=50");
    ask.send(&service).await.assert_fresh(201);
    assert_eq!(ask.send(&service).await.text(), "see there");
    let counts = layer.counts();
    assert_eq!(
        (counts.rendered, counts.not_kept, counts.replays),
        (1, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeat_whose_body_is_not_what_it_says_is_replayed_nothing() {
    let app = App::new();
    let layer = app.builder().verify_content_digest().stream_uploads(64);
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    // Of the first body (RFC 9530, appendix A).
    let digest = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
    let ask = post("/orders").key("k").header("content-digest", digest);
    let honest = ask.clone().body("{\"hello\": \"world\"}\n");
    honest.send(&service).await.assert_fresh(201);
    let lie = ask.body("{}").send(&service).await;
    lie.assert_refused(400, "body-broken");
    assert_eq!(layer.counts().replays, 0);
    assert!(honest.send(&service).await.is_replay());
    assert_eq!(layer.counts().replays, 1);
}
