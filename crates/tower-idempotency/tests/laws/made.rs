//! Answers that hooks make, and operators.

use std::io;

use bytes::Bytes;
use http::{Request, Response};
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_claim::store::Resolved;
use tower_claim::transaction::UniqueViolation;
use tower_claim::{LapsePolicy, Renewal};
use tower_idempotency::{IdempotencyLayer, Reconciled, RequestBody};

use crate::grpc::{CAP, call, calls, status};
use crate::support::*;

/// What a hook says.
type Says = fn() -> Response<Bytes>;

/// A run whose process dies.
async fn crash(app: &App) {
    let layer = app.builder().lease(ms(200)).renewal(Renewal::Off);
    let layer = layer.on_lapse(LapsePolicy::Hold).build().unwrap();
    let service = app.under(&layer);
    let slow = call().flags("delay=100000000");
    tokio::spawn(async move { slow.send(&service).await });
    tokio::time::sleep(ms(300)).await;
}

async fn twice(service: &Service) -> [Answer; 2] {
    [call().send(service).await, call().send(service).await]
}

async fn reconciled(says: Says) -> [Answer; 2] {
    let app = App::new();
    let (layer, store) = (app.builder().lease(ms(200)), app.store.inner().clone());
    let hook = move |_| async move { Reconciled::Done(says()) };
    crash(&app).await;
    twice(&app.under(&layer.reconcile(store, hook).build().unwrap())).await
}

async fn rendered(says: Says) -> [Answer; 2] {
    let app = App::new();
    let layer = app.builder().max_response_body(CAP);
    let layer = layer.on_not_kept(move |_| async move { Some(says()) });
    let service = calls("0").under(&layer.build().unwrap());
    call().send(&service).await.assert_fresh(200);
    twice(&service).await
}

/// A layer that answers for a row which is there already, over a handler that is refused that row.
fn existing(says: Says) -> Service {
    let layer = App::new()
        .builder()
        .on_unique_violation("one", move |_| async move { Some(says()) });
    refused_a_row(&layer.build().unwrap())
}

fn refused_a_row(layer: &IdempotencyLayer) -> Service {
    let handler = tower::service_fn(|_: Request<RequestBody<Body>>| {
        let response = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "13")
            .extension(UniqueViolation::new("one"))
            .body(body_of(""));
        std::future::ready(Ok::<_, io::Error>(response.unwrap()))
    });
    layer.layer(BoxCloneSyncService::new(handler))
}

async fn resolved(says: Says) -> [Answer; 2] {
    let app = App::new();
    crash(&app).await;
    let layer = app.builder().on_lapse(LapsePolicy::Hold).build().unwrap();
    resolve(&app, &layer, says).await;
    twice(&app.under(&layer)).await
}

async fn resolve(app: &App, layer: &IdempotencyLayer, says: Says) {
    let operator = layer.operator(app.store.inner().clone());
    let unknown = operator.unknown(None).await.unwrap().outcomes.remove(0);
    let done = operator.resolve_with(&unknown, says()).await.unwrap();
    assert!(matches!(done, Resolved::Resolved { .. }), "{done:?}");
}

async fn by_each(says: Says) -> [(&'static str, [Answer; 2]); 4] {
    [
        ("reconciled", reconciled(says).await),
        ("rendered", rendered(says).await),
        ("existing", twice(&existing(says)).await),
        ("resolved", resolved(says).await),
    ]
}

fn answer(status: &str, message: &'static str) -> Response<Bytes> {
    Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", status)
        .header("grpc-message", "said")
        .header("x-order", "7")
        .body(Bytes::from(message))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_is_told_behind_the_message_of_a_hook() {
    for (by, answers) in by_each(|| answer("0", "message")).await {
        for told in answers {
            assert!(told.is_replay(), "{by}");
            assert_eq!(
                (told.text(), &told.headers["x-order"]),
                ("message", &"7".parse().unwrap())
            );
            assert!(!told.headers.contains_key("grpc-status"), "{by}: {told:?}");
            assert!(!told.headers.contains_key("grpc-message"), "{by}");
            let trailers = told.trailers.unwrap();
            assert_eq!(
                (trailers.len(), &trailers["grpc-message"]),
                (2, &"said".parse().unwrap())
            );
            assert_eq!(trailers["grpc-status"], "0", "{by}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_says_nothing_of_the_end_of_a_call_means_that_it_is_well() {
    let says = || {
        let mut answer = answer("0", "message");
        answer.headers_mut().remove("grpc-status");
        answer.headers_mut().remove("grpc-message");
        answer
    };
    for (by, answers) in by_each(says).await {
        for told in answers {
            assert_eq!((status(&told), told.text()), ("0", "message"), "{by}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_without_a_message_tells_the_end_of_a_call_in_the_head() {
    for (by, answers) in by_each(|| answer("5", "")).await {
        for told in answers {
            assert!(told.is_replay(), "{by}");
            assert_eq!((told.trailers.is_none(), told.text()), (true, ""), "{by}");
            assert_eq!(told.headers["grpc-status"], "5", "{by}");
            assert_eq!(told.headers["grpc-message"], "said", "{by}");
        }
    }
}

/// By the status that it means, wherever that is sent.
#[tokio::test(start_paused = true)]
async fn a_hook_that_cannot_tell_by_its_status_is_asked_again() {
    for message in [false, true] {
        let says: Says = if message {
            || answer("14", "message")
        } else {
            || answer("14", "")
        };
        for told in twice(&existing(says)).await {
            assert_eq!(
                (status(&told), told.is_replay()),
                ("14", false),
                "{message}"
            );
            assert_eq!(
                told.trailers.is_some(),
                message,
                "it reaches the caller whole"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_what_an_operator_answers_no_more_is_kept_than_of_other_answers() {
    for (body, replayed) in [("12345", true), ("123456", false)] {
        let app = App::new();
        let ask = post("/orders").key("k");
        let crashing = app.builder().lease(ms(200)).renewal(Renewal::Off);
        let crashing = app.under(&crashing.on_lapse(LapsePolicy::Hold).build().unwrap());
        let slow = ask.clone().flags("delay=100000000");
        tokio::spawn(async move { slow.send(&crashing).await });
        tokio::time::sleep(ms(300)).await;
        let layer = app
            .builder()
            .on_lapse(LapsePolicy::Hold)
            .max_response_body(5);
        let layer = layer.on_not_kept(|done| async move {
            let made = done.headers()?.get("location")?.clone();
            Response::builder()
                .status(303)
                .header("location", made)
                .body(Bytes::new())
                .ok()
        });
        let layer = layer.build().unwrap();
        let operator = layer.operator(app.store.inner().clone());
        let unknown = operator.unknown(None).await.unwrap().outcomes.remove(0);
        let response = Response::builder().header("location", "/orders/7");
        let response = response.body(Bytes::from(body)).unwrap();
        operator.resolve_with(&unknown, response).await.unwrap();
        let told = ask.send(&app.under(&layer)).await;
        assert_eq!(told.status, if replayed { 200 } else { 303 }, "{body}");
        assert_eq!(told.headers["location"], "/orders/7");
        assert_eq!(told.text(), if replayed { body } else { "" });
    }
}

/// Whom the answer was made for is the first caller.
#[tokio::test(start_paused = true)]
async fn who_asks_first_is_told_what_is_redacted_in_a_hooks_answer() {
    let app = App::new();
    let layer = app
        .builder()
        .on_unique_violation("one", |_| async { Some(answer("0", "secret")) })
        .redact(|response| response.map(|_| "redacted".into()))
        .redact_trailers(|mut trailers| {
            trailers.remove("grpc-message");
            trailers
        });
    let [first, replay] = twice(&refused_a_row(&layer.build().unwrap())).await;
    assert_eq!((first.text(), replay.text()), ("secret", "redacted"));
    let trailers = |answer: Answer| answer.trailers.map_or(0, |trailers| trailers.len());
    assert_eq!((trailers(first), trailers(replay)), (2, 1));
}

/// As a framework puts its own error there.
#[derive(Clone)]
struct Failed(&'static str);

#[tokio::test(start_paused = true)]
async fn why_a_row_was_refused_is_read_out_of_the_answer() {
    let failing = |status: u16, why: &'static str| {
        let layer = App::new()
            .builder()
            .on_unique_violation("one", |row| async move {
                assert_eq!(row.violation().constraint(), "one");
                Some(Response::new("it is there".into()))
            })
            .unique_violation_by(|answer| {
                let Failed(why) = answer.extensions.get()?;
                assert_ne!(*why, "panic", "told to");
                Some(UniqueViolation::new(*why))
            });
        let handler = tower::service_fn(move |_: Request<RequestBody<Body>>| {
            let response = Response::builder().status(status).extension(Failed(why));
            std::future::ready(Ok::<_, io::Error>(response.body(body_of(why)).unwrap()))
        });
        let layer = layer.build().unwrap();
        layer.layer(BoxCloneSyncService::new(handler))
    };
    let ask = post("/orders").key("k");
    let told = ask.send(&failing(500, "one")).await;
    assert_eq!((told.text(), told.is_replay()), ("it is there", true));
    // Of no hook's constraint; unreadable; and where the handler has recovered.
    for (status, why) in [(500, "another"), (500, "panic"), (200, "one")] {
        let told = ask.send(&failing(status, why)).await;
        assert_eq!((told.text(), told.is_replay()), (why, false));
        assert_eq!(told.status.as_u16(), status);
    }
}

#[tokio::test]
async fn a_violation_that_no_hook_answers_for_is_not_read() {
    let layer = App::new().builder().unique_violation_by(|_| None);
    assert_eq!(layer.build().unwrap_err().setting(), "unique_violation_by");
}
