//! A kept answer is in a coding that its first caller accepted; who repeats the request may not.

use std::io;

use bytes::Bytes;
use http::header::ETAG;
use http::{HeaderName, HeaderValue, Request, Response};
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_claim::Renewal;
use tower_idempotency::{IdempotencyBuilder, RequestBody};

use crate::support::*;

/// A message that is compressed, by its flag.
const MESSAGE: &[u8] = b"\x01\0\0\0\x01x";

/// Answers in this coding; slowly where it is told to.
fn coded(builder: IdempotencyBuilder, headers: &[(&'static str, &'static str)]) -> Service {
    let headers = headers.to_vec();
    let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| {
        let mut response = Response::new(body_of(Bytes::from_static(MESSAGE)));
        for (name, value) in &headers {
            let name = HeaderName::from_static(name);
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        let is_slow = request.headers().contains_key("x-slow");
        async move {
            if is_slow {
                tokio::time::sleep(ms(1000)).await;
            }
            Ok::<_, io::Error>(response)
        }
    });
    let layer = builder.build().unwrap();
    layer.layer(BoxCloneSyncService::new(handler))
}

const GZIP: [(&str, &str); 1] = [("content-encoding", "gzip")];
const GRPC: [(&str, &str); 3] = [
    ("content-type", "application/grpc"),
    ("grpc-encoding", "gzip"),
    ("grpc-status", "0"),
];

#[tokio::test(start_paused = true)]
async fn an_answer_in_a_coding_that_a_repeat_does_not_accept_is_told_as_not_kept() {
    let app = App::new();
    let service = coded(app.builder(), &GZIP);
    let ask = post("/orders").key("k");
    let first = ask.clone().header("accept-encoding", "gzip");
    let first = first.send(&service).await;
    first.assert_fresh(200);
    for accepts in [None, Some("br, gzip"), Some("*")] {
        let again = match accepts {
            None => ask.clone(),
            Some(list) => ask.clone().header("accept-encoding", list),
        };
        again.send(&service).await.assert_replay_of(&first);
    }
    for accepts in ["br", "identity", "gzip;q=0"] {
        let again = ask.clone().header("accept-encoding", accepts);
        let again = again.send(&service).await;
        again.assert_refused(409, "response-not-kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_compressed_message_is_replayed_to_who_accepts_it_only() {
    let app = App::new();
    let service = coded(app.builder(), &GRPC);
    let call = post("/lab.Lab/Order").header("content-type", "application/grpc");
    let call = call.key("k");
    let accepting = call.clone().header("grpc-accept-encoding", "identity,gzip");
    let first = accepting.send(&service).await;
    first.assert_fresh(200);
    let again = accepting.send(&service).await;
    again.assert_replay_of(&first);
    assert_eq!(again.headers["grpc-encoding"], "gzip");
    for accepts in [None, Some("identity,zstd")] {
        let again = match accepts {
            None => call.clone(),
            Some(list) => call.clone().header("grpc-accept-encoding", list),
        };
        let again = again.send(&service).await;
        assert!(!again.is_replay(), "{accepts:?}");
        assert_eq!(again.headers["grpc-status"], "9", "{accepts:?}");
        assert_eq!(again.headers["problem-code"], "response-not-kept");
    }
}

/// Without it the message could not be read.
#[tokio::test(start_paused = true)]
async fn a_list_of_headers_need_not_name_the_coding_of_messages() {
    let app = App::new();
    let service = coded(app.builder().keep_headers_only([ETAG]), &GRPC);
    let call = post("/lab.Lab/Order").header("content-type", "application/grpc");
    let call = call.key("k").header("grpc-accept-encoding", "gzip");
    call.send(&service).await.assert_fresh(200);
    let again = call.send(&service).await;
    assert!(again.is_replay());
    assert_eq!(again.headers["grpc-encoding"], "gzip");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_told_in_other_words_where_there_is_a_hook() {
    let app = App::new();
    let builder = app.builder().on_not_kept(async |asked| {
        let see = Response::builder().status(asked.status()?);
        see.body(Bytes::from_static(b"see /orders/1")).ok()
    });
    let service = coded(builder, &GZIP);
    let ask = post("/orders").key("k");
    ask.send(&service).await.assert_fresh(200);
    let again = ask.header("accept-encoding", "br").send(&service).await;
    assert_eq!(
        (again.status.as_u16(), again.text()),
        (200, "see /orders/1")
    );
}

/// Also the caller of a run that came late, who is told the answer of another.
#[tokio::test(start_paused = true)]
async fn the_caller_of_a_late_run_is_not_sent_what_it_does_not_accept() {
    let app = App::new();
    let builder = app.builder().lease(ms(200)).renewal(Renewal::Off);
    let service = coded(builder, &GZIP);
    let ask = post("/orders").key("k");
    let late = {
        let (ask, service) = (ask.clone(), service.clone());
        let late = ask.header("x-slow", "1").header("accept-encoding", "br");
        tokio::spawn(async move { late.send(&service).await })
    };
    tokio::time::sleep(ms(300)).await;
    ask.send(&service).await.assert_fresh(200);
    let late = late.await.unwrap();
    late.assert_refused(409, "response-not-kept");
}
