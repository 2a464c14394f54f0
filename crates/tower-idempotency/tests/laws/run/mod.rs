//! The life of a handler: it runs to its end, and how it ends decides what a repeat gets.

mod detached;
mod doubt;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tower_claim::{Code, Refusal};
use tower_idempotency::{Outcome, RequestBody, default_outcome};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn what_asks_for_another_try_frees_the_key() {
    let app = App::new();
    let service = app.service();
    for (n, status) in [500, 502, 503, 504, 408, 425, 429].into_iter().enumerate() {
        let ask = post("/orders").key(&format!("k{status}"));
        let failed = ask.clone().flags(&format!("status={status}"));
        failed.send(&service).await.assert_fresh(status);
        ask.send(&service).await.assert_fresh(201);
        assert_eq!(app.effects(), 2 * (n as u64 + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_frees_the_key_and_reaches_the_caller() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    let panicked = ask.clone().flags("panic").send(&service).await;
    panicked.assert_refused(500, "handler-panicked");
    ask.send(&service).await.assert_fresh(201);
    assert_eq!((app.effects(), layer.counts().panics), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_inner_service_frees_the_key_and_stays_an_error() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k");
    let failing = ask.clone().flags("error").request();
    let error = tower::ServiceExt::oneshot(service.clone(), failing)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "told to");
    ask.send(&service).await.assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_no_outcome() {
    let app = App::new();
    let service = app.service();
    for (key, flags) in [
        ("known", "size=30&chunks=3&body_error=1"),
        ("unknown", "size=30&chunks=3&body_error=1&nolen"),
    ] {
        let ask = post("/orders").key(key);
        let broken = ask.clone().flags(flags).send(&service).await;
        assert_eq!(broken.body.unwrap_err(), "the body broke off", "{key}");
        ask.send(&service).await.assert_fresh(201);
    }
    assert_eq!(app.effects(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panics_is_no_outcome_and_no_whole_answer() {
    let app = App::new();
    let service = app.service();
    for (key, flags) in [
        ("known", "size=30&chunks=3&body_panic"),
        ("unknown", "size=30&chunks=3&body_panic&nolen"),
    ] {
        let ask = post("/orders").key(key);
        let panicking = ask.clone().flags(flags);
        let (panicking, service_) = (panicking.clone(), service.clone());
        let reading = tokio::spawn(async move { panicking.send(&service_).await });
        assert!(reading.await.unwrap_err().is_panic(), "{key}");
        ask.send(&service).await.assert_fresh(201);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_before_any_effect_frees_the_key() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k");
    let wrong = ask.clone().body("{\"amount\":-1}").flags("reject=422");
    wrong.send(&service).await.assert_fresh(422);
    assert_eq!(app.effects(), 0);
    let mended = ask.body("{\"amount\":1}").send(&service).await;
    mended.assert_fresh(201);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_the_point_of_no_return_every_answer_is_kept() {
    let app = App::new();
    let service = app.service();
    for status in [500, 503, 429] {
        let ask = post("/orders").key(&format!("k{status}"));
        let flags = format!("commit&status={status}");
        let first = ask.clone().flags(&flags).send(&service).await;
        first.assert_fresh(status);
        ask.send(&service).await.assert_replay_of(&first);
    }
    assert_eq!(app.effects(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_error_behind_all_announced_bytes_changes_nothing() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders")
        .key("k")
        .flags("size=30&chunks=3&body_error=3");
    let first = ask.send(&service).await;
    first.assert_fresh(201);
    assert_eq!(first.text().len(), 30);
    ask.send(&service).await.assert_replay_of(&first);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_the_point_of_no_return_leaves_the_outcome_unknown() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let service = app.under(&layer);
    for flags in ["commit&panic", "commit&size=30&chunks=3&body_error=1"] {
        let ask = post("/orders").key(&flags.replace(['&', '='], "-"));
        let _ = ask.clone().flags(flags).send(&service).await;
        ask.send(&service)
            .await
            .assert_refused(409, "outcome-unknown");
        let other = ask.clone().body("other").send(&service).await;
        other.assert_refused(422, "key-reused");
    }
    assert_eq!((app.effects(), layer.counts().outcome_unknown), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn the_outcome_rule_can_be_replaced() {
    let app = App::new();
    let rule = |status: http::StatusCode| match status.as_u16() {
        404 => Outcome::Release,
        500 => Outcome::Keep,
        _ => default_outcome(status),
    };
    let service = app.under(&app.builder().outcome(rule).build().unwrap());
    for (status, kept) in [(404, false), (500, true), (503, false), (201, true)] {
        let ask = post("/orders")
            .key(&format!("k{status}"))
            .flags(&format!("status={status}"));
        ask.send(&service).await.assert_fresh(status);
        assert_eq!(ask.send(&service).await.is_replay(), kept, "{status}");
    }
}

/// The work is done: a rule that fails behind it must not let it be done twice.
#[tokio::test(start_paused = true)]
async fn behind_a_rule_that_panics_the_work_is_done_and_its_answer_not_kept() {
    for grpc in [false, true] {
        let app = App::new();
        let builder = app.builder();
        let layer = if grpc {
            builder.grpc_outcome(|_| panic!("told to"))
        } else {
            builder.outcome(|_| panic!("told to"))
        };
        let by_head = app.builder().outcome_if(|_| panic!("told to"));
        for layer in [layer, by_head] {
            let layer = layer.build().unwrap();
            let handler = tower::service_fn(move |_: http::Request<RequestBody<Body>>| {
                let mut response = http::Response::new(body_of("done"));
                if grpc {
                    let status = http::HeaderValue::from_static("0");
                    response.headers_mut().insert("grpc-status", status);
                }
                std::future::ready(Ok::<_, std::io::Error>(response))
            });
            let service = tower::util::BoxCloneSyncService::new(handler);
            let service = tower::Layer::layer(&layer, service);
            let ask = post("/orders").key(&format!("k{}", app.records()));
            let ask = if grpc {
                ask.header("content-type", "application/grpc")
            } else {
                ask
            };
            let first = ask.send(&service).await;
            assert_eq!(first.assert_fresh(200).text(), "done");
            let again = ask.send(&service).await;
            assert!(!again.is_replay(), "{again:?}");
            let counts = layer.counts();
            assert_eq!((counts.runs, counts.tombstones, counts.not_kept), (1, 1, 1));
        }
    }
}

/// A lease, a fence, a limit inside: its refusal, kept for a day, would be replayed when the resource has long
/// been free again.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_layer_inside_is_no_outcome() {
    let app = App::new();
    for &code in Code::ALL {
        let layer = app.builder().build().unwrap();
        let calls = Arc::new(AtomicU64::new(0));
        let handler = tower::service_fn(move |_: http::Request<RequestBody<Body>>| {
            let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
            let answer = if first {
                Refusal::new(code).to_response(false).map(body_of)
            } else {
                http::Response::new(body_of("done"))
            };
            async move { Ok::<_, std::io::Error>(answer) }
        });
        let service = tower::Layer::layer(&layer, tower::util::BoxCloneSyncService::new(handler));
        let ask = post("/orders").key(code.name());
        let refused = ask.send(&service).await;
        assert_eq!(refused.code(), code.name());
        ask.send(&service).await.assert_fresh(200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_locked_resource_asks_for_another_try() {
    let app = App::new();
    let service = app.service();
    let ask = post("/orders").key("k");
    let locked = ask.clone().flags("status=423").send(&service).await;
    locked.assert_fresh(423);
    ask.send(&service).await.assert_fresh(201);
}

/// The host breaks the connection there: nobody has got an answer.
#[tokio::test(start_paused = true)]
async fn an_answer_shorter_than_it_says_is_no_outcome() {
    let app = App::new();
    for (status, length, text, kept) in [
        (200, "100", "half of it", false),
        (200, "10", "half of it", true),
        // These have no body, whatever they say.
        (304, "100", "", true),
    ] {
        let layer = app.builder().build().unwrap();
        let handler = tower::service_fn(move |_: http::Request<RequestBody<Body>>| async move {
            let frame = Ok::<_, std::io::Error>(http_body::Frame::data(text.into()));
            let body = http_body_util::StreamBody::new(futures_util::stream::iter([frame]));
            let response = http::Response::builder().status(status);
            let response = response.header("content-length", length);
            let body = http_body_util::BodyExt::boxed_unsync(body);
            Ok::<_, std::io::Error>(response.body(body).unwrap())
        });
        let service = tower::util::BoxCloneSyncService::new(handler);
        let service = tower::Layer::layer(&layer, service);
        let ask = post("/orders").key(&format!("{status}-{length}"));
        let first = ask.send(&service).await;
        first.assert_fresh(status);
        assert_eq!(ask.send(&service).await.is_replay(), kept, "{status}");
        assert_eq!(layer.counts().runs, if kept { 1 } else { 2 }, "{status}");
    }
}
