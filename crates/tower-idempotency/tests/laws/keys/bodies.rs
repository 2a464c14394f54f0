//! What is one payload, and uploads that come to nothing.

use futures_util::{FutureExt, stream};
use http::Method;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn one_key_for_another_payload_is_refused() {
    let app = App::new();
    let service = app.service();
    let first = post("/orders")
        .key("k")
        .header("content-type", "application/json");
    first
        .clone()
        .body("{\"a\":1}")
        .send(&service)
        .await
        .assert_fresh(201);
    let others = [
        first.clone().body("{\"a\":2}"),
        first.clone().body("{}"),
        first.clone().body(""),
        first.clone().no_body(),
        first.clone().body("{\"a\":1}").method(Method::PUT),
        post("/orders")
            .key("k")
            .header("content-type", "text/plain")
            .body("{\"a\":1}"),
        post("/orders?x=1")
            .key("k")
            .header("content-type", "application/json")
            .body("{\"a\":1}"),
        post("/refunds")
            .key("k")
            .header("content-type", "application/json")
            .body("{\"a\":1}"),
    ];
    for other in others {
        other.send(&service).await.assert_refused(422, "key-reused");
    }
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn empty_and_absent_are_one_body_and_an_empty_object_is_another() {
    let app = App::new();
    let service = app.service();
    let bodies = [
        post("/orders").key("k").body(""),
        post("/orders").key("k").body("{}"),
        post("/orders").key("k").no_body(),
    ];
    for (i, first) in bodies.iter().enumerate() {
        let key = format!("k{i}");
        let with_key = |ask: &Ask| {
            let mut request = ask.request();
            request
                .headers_mut()
                .insert("idempotency-key", key.parse().unwrap());
            request
        };
        send(&service, with_key(first)).await.assert_fresh(201);
        for (j, other) in bodies.iter().enumerate() {
            let again = send(&service, with_key(other)).await;
            if (i == 1) == (j == 1) {
                assert!(again.is_replay(), "{i} and {j}");
            } else {
                again.assert_refused(422, "key-reused");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn chunk_borders_and_a_missing_length_do_not_matter() {
    let app = App::new();
    let service = app.service();
    let chunked = |chunks: &'static [&'static str]| {
        let frames = chunks.iter().map(|c| Ok(Frame::data((*c).into())));
        let mut request = post("/orders")
            .key("k")
            .no_body()
            .with(StreamBody::new(stream::iter(frames)).boxed_unsync());
        request
            .headers_mut()
            .insert("transfer-encoding", "chunked".parse().unwrap());
        request
    };
    let first = send(&service, chunked(&["{\"a\"", ":1}"])).await;
    first.assert_fresh(201);
    for same in [&["{\"a\":1}"][..], &["", "{", "\"a\":1}", ""]] {
        send(&service, chunked(same)).await.assert_replay_of(&first);
    }
    let sized = post("/orders")
        .key("k")
        .body("{\"a\":1}")
        .send(&service)
        .await;
    sized.assert_replay_of(&first);
    send(&service, chunked(&["{\"a\"", ":2}"]))
        .await
        .assert_refused(422, "key-reused");
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_refused_without_effect_or_record() {
    let app = App::new();
    let service = app.under(&app.builder().max_request_body(8).build().unwrap());
    let ask = post("/orders").key("k");
    let long = ask.clone().body("123456789").send(&service).await;
    long.assert_refused(413, "body-too-large");
    let frames = ["12345678", "9"].map(|c| Ok(Frame::data(c.into())));
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    send(&service, ask.clone().no_body().with(body))
        .await
        .assert_refused(413, "body-too-large");
    assert_eq!((app.effects(), app.store.faults().calls().total()), (0, 0));
    ask.body("12345678").send(&service).await.assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn a_broken_upload_has_no_effect_and_leaves_the_key_free() {
    let app = App::new();
    let service = app.service();
    let frames = [
        Ok(Frame::data("{".into())),
        Err(std::io::Error::other("connection reset")),
    ];
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    let ask = post("/orders").key("k");
    send(&service, ask.with(body))
        .await
        .assert_refused(400, "body-broken");
    assert_eq!((app.effects(), app.store.faults().calls().total()), (0, 0));
    ask.send(&service).await.assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_during_the_upload_leaves_the_key_free() {
    let app = App::new();
    let service = app.service();
    let body = StreamBody::new(stream::pending()).boxed_unsync();
    let ask = post("/orders").key("k");
    assert!(send(&service, ask.with(body)).now_or_never().is_none());
    ask.send(&service).await.assert_fresh(201);
    assert_eq!(app.effects(), 1);
}
