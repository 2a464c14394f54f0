//! Large uploads without a digest: they stream to the handler, and what they were is known behind their end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, StreamBody};
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_idempotency::{IdempotencyBuilder, OnBusy, RequestBody, UploadError};

use crate::support::*;

/// More than is read first.
const LARGE: &str = "a large upload";
const OTHER: &str = "a large uploaD";

fn ask() -> Ask {
    post("/orders").key("8e03978e-40d5-43dd")
}

/// Reads four bytes first.
fn streaming(app: &App) -> IdempotencyBuilder {
    app.builder().max_request_body(4).stream_uploads(64)
}

/// In pieces of one byte, so of no length that is known.
fn in_pieces(text: &'static str) -> Body {
    let pieces: Vec<_> = (0..text.len())
        .map(|at| Ok(Frame::data(Bytes::from(&text[at..=at]))))
        .collect();
    StreamBody::new(stream::iter(pieces)).boxed_unsync()
}

/// A handler that answers with what it was sent, or with what became of that.
fn echo() -> BoxCloneSyncService<Request<RequestBody<Body>>, Response<Body>, io::Error> {
    BoxCloneSyncService::new(tower::service_fn(
        async |request: Request<RequestBody<Body>>| {
            let text = match request.into_body().collect().await {
                Ok(whole) => whole.to_bytes(),
                Err(error) => format!("{:?}", error.downcast_ref::<UploadError>()).into(),
            };
            Ok(Response::new(body_of(text)))
        },
    ))
}

#[tokio::test(start_paused = true)]
async fn the_handler_has_the_first_bytes_before_the_last_are_sent_and_nothing_is_buffered() {
    let app = App::new();
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let (go_on, gate) = tokio::sync::watch::channel(false);
    let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let (seen, mut gate) = (Arc::clone(&counted), gate.clone());
        async move {
            let mut body = request.into_body();
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                seen.fetch_add(data.len(), Ordering::SeqCst);
                gate.wait_for(|open| *open).await.unwrap();
            }
            Ok::<_, io::Error>(Response::new(body_of("read")))
        }
    });
    let layer = app.builder().max_request_body(1024).stream_uploads(1 << 30);
    let service = layer
        .build()
        .unwrap()
        .layer(BoxCloneSyncService::new(handler));
    let (mut upload, body) = Channel::<Bytes, io::Error>::new(1);
    let first = tokio::spawn({
        let (service, first) = (service.clone(), ask().no_body().with(body.boxed_unsync()));
        async move { send(&service, first).await }
    });
    let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
    let mut ahead = 0;
    while let Ok(Ok(())) = tokio::time::timeout(ms(10), upload.send_data(chunk.clone())).await {
        ahead += 1;
        assert!(ahead < 10, "the upload is read though nobody wants it");
    }
    assert_eq!(seen.load(Ordering::SeqCst), chunk.len());
    go_on.send(true).unwrap();
    for _ in 0..1024 {
        upload.send_data(chunk.clone()).await.unwrap();
    }
    drop(upload);
    first.await.unwrap().assert_fresh(200);
    assert!(seen.load(Ordering::SeqCst) >= 1024 * chunk.len());
}

#[tokio::test(start_paused = true)]
async fn a_repeat_is_held_against_the_digest_of_what_the_handler_read() {
    let app = App::new();
    let service = app.under(&streaming(&app).build().unwrap());
    let first = ask().body(LARGE).send(&service).await;
    first.assert_fresh(201);
    for text in [LARGE, OTHER] {
        for body in [body_of(text), in_pieces(text)] {
            let again = send(&service, ask().no_body().with(body)).await;
            if text == LARGE {
                again.assert_replay_of(&first);
            } else {
                again.assert_refused(422, "key-reused");
            }
        }
    }
    let small = ask().body("tiny").send(&service).await;
    small.assert_refused(422, "key-reused");
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_redacted_or_not_kept_keeps_its_digest() {
    for change in [
        (|b| b.max_response_body(1)) as fn(IdempotencyBuilder) -> IdempotencyBuilder,
        |b| b.redact(|_| Response::new("redacted".into())),
        |b| b.fingerprint_secret([7; 32]),
    ] {
        let app = App::new();
        let service = app.under(&change(streaming(&app)).build().unwrap());
        ask().body(LARGE).send(&service).await.assert_fresh(201);
        let again = ask().body(LARGE).send(&service).await;
        assert_ne!(again.status, 422, "{again:?}");
        let other = ask().body(OTHER).send(&service).await;
        other.assert_refused(422, "key-reused");
        assert_eq!(app.effects(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_first_run_is_going_the_head_tells_and_no_repeat_is_read() {
    let app = App::new();
    let service = app.under(&streaming(&app).build().unwrap());
    let slow = tokio::spawn({
        let service = service.clone();
        async move { ask().flags("delay=1000").body(LARGE).send(&service).await }
    });
    tokio::time::sleep(ms(10)).await;
    let (mut upload, never_ends) = Channel::<Bytes, io::Error>::new(1);
    upload.send_data(OTHER.into()).await.unwrap();
    let repeat = ask().no_body().with(never_ends.boxed_unsync());
    let repeat = send(&service, repeat).await;
    repeat.assert_refused(409, "in-progress");
    drop(upload);
    let typed = ask().header("content-type", "text/csv").body(LARGE);
    typed.send(&service).await.assert_refused(422, "key-reused");
    ask()
        .body("tiny")
        .send(&service)
        .await
        .assert_refused(422, "key-reused");
    slow.await.unwrap().assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_is_told_the_answer_to_its_own_upload_only() {
    let app = App::new();
    let layer = streaming(&app).on_busy(OnBusy::Wait(ms(60_000)));
    let service = app.under(&layer.build().unwrap());
    let first = tokio::spawn({
        let service = service.clone();
        async move { ask().flags("delay=1000").body(LARGE).send(&service).await }
    });
    tokio::time::sleep(ms(10)).await;
    let (same, other) = (ask().body(LARGE), ask().body(OTHER));
    let (same, other) = tokio::join!(same.send(&service), other.send(&service));
    same.assert_replay_of(&first.await.unwrap());
    other.assert_refused(422, "key-reused");
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_breaks_or_is_too_long_binds_no_key() {
    let app = App::new();
    let service = streaming(&app).build().unwrap().layer(echo());
    let reset = stream::iter([
        Ok(Frame::data(Bytes::from_static(b"a large"))),
        Err(io::Error::other("connection reset")),
    ]);
    let broken = ask().no_body().with(StreamBody::new(reset).boxed_unsync());
    assert_eq!(send(&service, broken).await.text(), "None");
    let long: &str = Box::leak("x".repeat(65).into_boxed_str());
    let long = ask().no_body().with(in_pieces(long));
    assert_eq!(send(&service, long).await.text(), "Some(TooLarge)");
    let whole = ask().body(LARGE).send(&service).await;
    assert_eq!(whole.assert_fresh(200).text(), LARGE);
}

#[tokio::test(start_paused = true)]
async fn of_an_upload_that_nobody_read_the_head_is_compared() {
    let app = App::new();
    let handler = tower::service_fn(async |_: Request<RequestBody<Body>>| {
        Ok::<_, io::Error>(Response::new(body_of("unread")))
    });
    let layer = streaming(&app).build().unwrap();
    let service = layer.layer(BoxCloneSyncService::new(handler));
    let first = ask().body(LARGE).send(&service).await;
    ask()
        .body(OTHER)
        .send(&service)
        .await
        .assert_replay_of(&first);
}

#[tokio::test(start_paused = true)]
async fn where_the_first_payload_wins_another_upload_is_a_repeat() {
    let app = App::new();
    let layer = streaming(&app).first_payload_wins().build().unwrap();
    let service = app.under(&layer);
    let first = ask().body(LARGE).send(&service).await;
    for text in [OTHER, "tiny"] {
        ask()
            .body(text)
            .send(&service)
            .await
            .assert_replay_of(&first);
    }
}
