//! Calls of gRPC, whose end tells what their answer is worth.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, StreamBody};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};
use tower_claim::Renewal;
use tower_claim::testing::{Fault, Operation};
use tower_idempotency::{IdempotencyLayer, RequestBody};

use crate::support::*;

/// More than what is kept.
const MESSAGE: usize = 1000;
pub(crate) const CAP: usize = 100;

/// A server of calls, each with a message in ten frames, and this status behind it.
#[derive(Clone)]
pub(crate) struct Calls {
    status: &'static str,
    /// Between two frames.
    pause: u64,
    /// Whether the head says how long the message is.
    tells_length: bool,
    runs: Arc<AtomicUsize>,
    /// How many bodies were read to their end.
    ended: Arc<AtomicUsize>,
}

pub(crate) fn calls(status: &'static str) -> Calls {
    Calls {
        status,
        pause: 0,
        tells_length: false,
        runs: Arc::default(),
        ended: Arc::default(),
    }
}

impl Calls {
    pub(crate) fn under(&self, layer: &IdempotencyLayer) -> Service {
        let calls = self.clone();
        let handler = tower::service_fn(move |_: Request<RequestBody<Body>>| {
            calls.runs.fetch_add(1, Ordering::SeqCst);
            let (calls, tells_length) = (calls.clone(), calls.tells_length);
            let frames = stream::unfold(0, move |n| {
                let calls = calls.clone();
                async move {
                    if n > 0 && calls.pause > 0 {
                        tokio::time::sleep(ms(calls.pause)).await;
                    }
                    let frame = match n {
                        0..10 => Frame::data(Bytes::from(vec![b'x'; MESSAGE / 10])),
                        10 => {
                            calls.ended.fetch_add(1, Ordering::SeqCst);
                            let mut trailers = HeaderMap::new();
                            let status = HeaderValue::from_static(calls.status);
                            trailers.insert("grpc-status", status);
                            Frame::trailers(trailers)
                        }
                        _ => return None,
                    };
                    Some((Ok::<_, io::Error>(frame), n + 1))
                }
            });
            let mut response = Response::builder().header("content-type", "application/grpc");
            if tells_length {
                response = response.header("content-length", MESSAGE);
            }
            let body = StreamBody::new(frames).boxed_unsync();
            std::future::ready(Ok::<_, io::Error>(response.body(body).unwrap()))
        });
        layer.layer(BoxCloneSyncService::new(handler))
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

pub(crate) fn call() -> Ask {
    let call = post("/lab.Lab/Order").header("content-type", "application/grpc");
    call.key("k")
}

pub(crate) fn status(answer: &Answer) -> &str {
    let trailers = answer.trailers.as_ref().unwrap_or(&answer.headers);
    trailers["grpc-status"].to_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_message_over_the_cap_is_settled_by_the_status_behind_it() {
    for tells_length in [false, true] {
        for (said, runs, again) in [("14", 2, "14"), ("0", 1, "9"), ("5", 1, "9")] {
            let app = App::new();
            let calls = Calls {
                tells_length,
                ..calls(said)
            };
            let layer = app.builder().max_response_body(CAP).build().unwrap();
            let service = calls.under(&layer);
            let first = call().send(&service).await;
            assert_eq!((status(&first), first.text().len()), (said, MESSAGE));
            let told = call().send(&service).await;
            let what = format!("{said} {tells_length}");
            assert_eq!((status(&told), calls.runs()), (again, runs), "{what}");
            let counts = layer.counts();
            let tombstones = u64::from(runs == 1);
            assert_eq!((counts.kept, counts.tombstones), (0, tombstones), "{what}");
        }
    }
}

/// Frames go on as they come, and the end after the record.
#[tokio::test(start_paused = true)]
async fn over_the_cap_only_the_end_waits_for_the_store() {
    let app = App::new();
    let layer = app.builder().max_response_body(CAP).build().unwrap();
    let service = calls("0").under(&layer);
    app.store
        .faults()
        .set_for(Operation::Finish, Fault::Delay(ms(700)));
    let start = tokio::time::Instant::now();
    let response = service.clone().oneshot(call().request()).await.unwrap();
    let mut body = response.into_body();
    let mut read = 0;
    while read < MESSAGE {
        let frame = soon(body.frame()).await.unwrap().unwrap();
        read += frame.data_ref().unwrap().len();
    }
    assert_eq!(start.elapsed(), ms(0));
    assert!(!body.is_end_stream());
    let end = soon(body.frame()).await.unwrap().unwrap();
    assert_eq!(end.trailers_ref().unwrap()["grpc-status"], "0");
    assert_eq!(start.elapsed(), ms(700));
    assert!(body.frame().await.is_none() && body.is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn over_the_cap_a_caller_that_hangs_up_does_not_keep_the_end_from_being_seen() {
    for (said, runs) in [("14", 2), ("0", 1)] {
        // Before it has heard of the body's end, and before it has heard anything.
        for frames in [0, 1, 5] {
            let app = App::new();
            let calls = Calls {
                pause: 10,
                ..calls(said)
            };
            let layer = app.builder().max_response_body(CAP).build().unwrap();
            let service = calls.under(&layer);
            let response = service.clone().oneshot(call().request()).await.unwrap();
            let mut body = response.into_body();
            for _ in 0..frames {
                soon(body.frame()).await.unwrap().unwrap();
            }
            drop(body);
            soon(async {
                while layer.in_flight() > 0 {
                    tokio::time::sleep(ms(10)).await;
                }
            })
            .await;
            assert_eq!(calls.ended.load(Ordering::SeqCst), 1, "{said} {frames}");
            call().send(&service).await;
            assert_eq!(calls.runs(), runs, "{said} {frames}");
        }
    }
}

/// A caller that reads slowly must not have its work run again.
#[tokio::test(start_paused = true)]
async fn over_the_cap_a_claim_that_ends_before_its_answer_is_remembered_as_done() {
    let app = App::new();
    let calls = calls("14");
    let layer = app.builder().lease(ms(200)).max_hold(ms(1000));
    let layer = layer.max_response_body(CAP).build().unwrap();
    let service = calls.under(&layer);
    let response = service.clone().oneshot(call().request()).await.unwrap();
    tokio::time::sleep(ms(2000)).await;
    let told = call().send(&service).await;
    assert_eq!((status(&told), calls.runs()), ("9", 1));
    let late = soon(read(response)).await;
    assert_eq!((status(&late), late.text().len()), ("14", MESSAGE));
}

/// Each frame is a sign of life.
#[tokio::test(start_paused = true)]
async fn over_the_cap_a_body_that_moves_holds_its_claim() {
    for hangs_up in [false, true] {
        let app = App::new();
        let calls = Calls {
            pause: 500,
            ..calls("0")
        };
        let stall_after = ms(1000);
        let layer = app.builder().lease(ms(600));
        let layer = layer.renewal(Renewal::Progress { stall_after });
        let layer = layer.max_response_body(CAP).build().unwrap();
        let service = calls.under(&layer);
        let response = service.clone().oneshot(call().request()).await.unwrap();
        let reading = tokio::spawn(async move {
            if !hangs_up {
                read(response).await;
            }
        });
        tokio::time::sleep(ms(4300)).await;
        assert_eq!(status(&call().send(&service).await), "10", "{hangs_up}");
        soon(reading).await.unwrap();
        tokio::time::sleep(ms(1000)).await;
        assert_eq!(status(&call().send(&service).await), "9", "{hangs_up}");
        assert_eq!(calls.runs(), 1);
    }
}

/// Until its status is there, a call is as a handler that has not answered.
#[tokio::test(start_paused = true)]
async fn an_answer_that_outlasts_its_claim_is_settled_by_its_status_all_the_same() {
    for tells_length in [false, true] {
        for (said, runs) in [("14", 2), ("0", 1)] {
            let app = App::new();
            let calls = Calls {
                pause: 500,
                tells_length,
                ..calls(said)
            };
            let layer = app.builder().lease(ms(200)).max_hold(ms(1000));
            let layer = layer.build().unwrap();
            let service = calls.under(&layer);
            let first = call().send(&service).await;
            let what = format!("{said} {tells_length}");
            assert_eq!((status(&first), first.text().len()), (said, MESSAGE));
            let told = call().send(&service).await;
            assert_eq!((status(&told), calls.runs()), (said, runs), "{what}");
            assert_eq!(told.is_replay(), runs == 1, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_run_was_taken_over_meanwhile_has_no_end() {
    let app = App::new();
    let calls = Calls {
        pause: 500,
        ..calls("0")
    };
    let layer = app.builder().lease(ms(200)).max_hold(ms(1000));
    let service = calls.under(&layer.build().unwrap());
    let first = tokio::spawn({
        let service = service.clone();
        async move { call().send(&service).await }
    });
    tokio::time::sleep(ms(2000)).await;
    let quick = Calls { pause: 0, ..calls };
    let other = app.builder().lease(ms(200)).build().unwrap();
    let second = call().send(&quick.under(&other)).await;
    assert_eq!((status(&second), quick.runs()), ("0", 2));
    let cut_off = soon(first).await.unwrap();
    assert!(cut_off.body.unwrap_err().contains("cut off"));
    assert!(call().send(&service).await.is_replay());
}
