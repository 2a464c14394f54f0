//! How long a lease lasts: until the response body has ended, and not a frame longer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use crate::world::*;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::Notify;
use tower::{Layer, ServiceExt};
use tower_claim::store::State;
use tower_claim::testing::{Fault, Operation};
use tower_lease_guard::lease::LeaseBody;
use tower_lease_guard::{LeaseGuardLayer, LeaseLost, Loss, Renewal};

/// The response of a handler that answers with this, under a lease on account `a`.
async fn respond<F>(
    layer: &LeaseGuardLayer,
    method: Method,
    make: F,
) -> Response<LeaseBody<TestBody>>
where
    F: Fn(&Request<()>) -> Response<TestBody> + Clone + Send + Sync + 'static,
{
    let service = layer.layer(tower::service_fn(move |req: Request<()>| {
        let response = make(&req);
        async move { Ok::<_, Infallible>(response) }
    }));
    let mut request = request("/accounts/a");
    *request.method_mut() = method;
    service.oneshot(request).await.unwrap()
}

async fn is_free(world: &World) -> bool {
    world
        .record("a")
        .await
        .is_none_or(|record| record.state == State::Free)
}

fn stream(frames: Vec<Frame<Bytes>>) -> TestBody {
    let frames = frames.into_iter().map(Ok::<_, Infallible>);
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

#[tokio::test(start_paused = true)]
async fn the_release_is_answered_before_the_last_frame_of_a_known_length() {
    let world = World::new();
    // hyper polls exactly one frame of such a body and drops it.
    let mut response = respond(&world.layer(), Method::PUT, |_| Response::new(full("ran"))).await;
    assert_eq!(response.body().size_hint().exact(), Some(3));
    assert!(!response.body().is_end_stream() && !is_free(&world).await);
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "ran");
    assert!(is_free(&world).await);
    assert!(response.body().is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn the_release_is_answered_before_the_last_announced_byte() {
    let world = World::new();
    let mut response = respond(&world.layer(), Method::PUT, |_| {
        let body = stream(vec![data("ab"), data("cd")]);
        Response::builder()
            .header("content-length", "4")
            .body(body)
            .unwrap()
    })
    .await;
    let body = response.body_mut();
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "ab"
    );
    assert!(!is_free(&world).await);
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "cd"
    );
    assert!(is_free(&world).await);
}

#[tokio::test(start_paused = true)]
async fn the_release_is_answered_before_the_end_of_a_stream() {
    let world = World::new();
    let mut response = respond(&world.layer(), Method::PUT, |_| {
        Response::new(stream(vec![data("ab"), data("cd")]))
    })
    .await;
    for text in ["ab", "cd"] {
        assert_eq!(
            response
                .body_mut()
                .frame()
                .await
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap(),
            text
        );
        assert!(!is_free(&world).await);
    }
    assert!(response.body_mut().frame().await.is_none());
    assert!(is_free(&world).await);
}

#[tokio::test(start_paused = true)]
async fn the_release_is_answered_before_the_trailers_also_behind_announced_bytes() {
    for length in [None, Some("2")] {
        let world = World::new();
        let mut response = respond(&world.layer(), Method::PUT, move |_| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let mut response = Response::new(stream(vec![data("ab"), Frame::trailers(trailers)]));
            if let Some(length) = length {
                response
                    .headers_mut()
                    .insert("content-length", length.parse().unwrap());
            }
            response
        })
        .await;
        let body = response.body_mut();
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "ab"
        );
        assert_eq!(is_free(&world).await, length.is_some());
        let trailers = body
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_trailers()
            .unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert!(is_free(&world).await);
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_without_a_body_is_over_at_its_head() {
    for (method, status, length) in [
        (Method::HEAD, 200, None),
        (Method::HEAD, 200, Some("12")),
        (Method::PUT, 204, None),
        (Method::GET, 304, None),
        (Method::PUT, 200, Some("0")),
        (Method::GET, 101, None),
        (Method::CONNECT, 200, None),
    ] {
        let (world, log) = (World::new(), Log::default());
        let gone = log.clone();
        let response = respond(&world.layer(), method.clone(), move |_| {
            let body = Frames {
                frames: vec!["never polled"],
                ends: false,
                guard: Some(OnDrop(gone.clone(), "body gone")),
            };
            let mut response = Response::new(body.boxed_unsync());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            if let Some(length) = length {
                let length = length.parse().unwrap();
                response.headers_mut().insert("content-length", length);
            }
            response
        })
        .await;
        assert_eq!(response.status(), status);
        assert!(is_free(&world).await, "{method} {status}");
        // hyper asks a body for its length, and over HTTP/2 polls it, also where none may be sent.
        assert_eq!(log.lines(), ["body gone"], "it would go on without a lease");
        assert_eq!(text(response.into_body()).await, "");
    }
    let world = World::new();
    let empty = respond(&world.layer(), Method::PUT, |_| Response::new(full(""))).await;
    assert!(is_free(&world).await && empty.body().is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_for_head_still_says_its_length() {
    let world = World::new();
    let head = respond(&world.layer(), Method::HEAD, |_| Response::new(full("ran"))).await;
    assert!(is_free(&world).await);
    assert_eq!(head.body().size_hint().exact(), Some(3));
    assert!(!head.body().is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn the_trailers_of_a_body_without_bytes_survive() {
    let world = World::new();
    let mut response = respond(&world.layer(), Method::PUT, |_| {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let trailers = std::future::ready(Some(Ok(trailers)));
        let body = http_body_util::Empty::new().with_trailers(trailers);
        assert_eq!(body.size_hint().exact(), Some(0));
        Response::new(body.boxed_unsync())
    })
    .await;
    // At an exact length of zero hyper would drop it unpolled, and the lease would go after the head.
    assert_eq!(response.body().size_hint().exact(), None);
    assert!(!is_free(&world).await);
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_trailers().unwrap()["grpc-status"], "0");
    assert!(is_free(&world).await);
}

#[tokio::test(start_paused = true)]
async fn a_slow_release_holds_the_last_frame_back() {
    let world = World::new();
    let slow = Duration::from_millis(400);
    world.faults.set_for(Operation::Release, Fault::Delay(slow));
    let mut response = respond(&world.layer(), Method::PUT, |_| Response::new(full("ran"))).await;
    let start = tokio::time::Instant::now();
    let mut frame = Box::pin(response.body_mut().frame());
    assert!(once(&mut frame).await.is_none());
    let frame = frame.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), slow);
    assert_eq!(frame.into_data().unwrap(), "ran");
    assert!(is_free(&world).await);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_the_release_does_not_hold_the_response_for_ever() {
    let world = World::new();
    let layer = world.layer();
    world.faults.set_for(Operation::Release, Fault::Down);
    let response = respond(&layer, Method::PUT, |_| Response::new(full("ran"))).await;
    let start = tokio::time::Instant::now();
    assert_eq!(refusal(response).await, ran());
    assert!(start.elapsed() < LEASE, "{:?}", start.elapsed());
    world.faults.set(Fault::Ok);
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(ask(&layer).await, ran());
}

#[tokio::test(start_paused = true)]
async fn with_a_clone_left_the_last_frame_does_not_wait_and_the_lease_goes_with_the_clone() {
    let (world, gate) = (World::new(), Arc::new(Notify::new()));
    let waits = gate.clone();
    let response = respond(&world.layer(), Method::PUT, move |req| {
        let (lease, gate) = (lease_of(req), waits.clone());
        tokio::spawn(async move {
            gate.notified().await;
            drop(lease);
        });
        Response::new(full("ran"))
    })
    .await;
    assert_eq!(refusal(response).await, ran());
    settle().await;
    assert!(!is_free(&world).await);
    gate.notify_waiters();
    settle().await;
    assert!(is_free(&world).await);
}

#[tokio::test(start_paused = true)]
async fn a_clone_inside_of_the_body_goes_with_the_body() {
    let world = World::new();
    let response = respond(&world.layer(), Method::PUT, |req| {
        let lease = lease_of(req);
        let frames = futures_util::stream::iter(["ab", "cd"]);
        let checked = futures_util::StreamExt::map(frames, move |text| {
            lease.check().unwrap();
            Ok::<_, Infallible>(data(text))
        });
        Response::new(StreamBody::new(checked).boxed_unsync())
    })
    .await;
    assert_eq!(text(response.into_body()).await, "abcd");
    assert!(is_free(&world).await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_in_mid_stream_ends_the_body_with_an_error() {
    let (world, log) = (World::new(), Log::default());
    let layer = world.builder().renewal(Renewal::Off).build().unwrap();
    let gone = log.clone();
    let mut response = respond(&layer, Method::PUT, move |_| {
        let guard = Some(OnDrop(gone.clone(), "body gone"));
        Response::new(
            Frames {
                frames: vec!["a"],
                ends: false,
                guard,
            }
            .boxed_unsync(),
        )
    })
    .await;
    let start = tokio::time::Instant::now();
    let body = response.body_mut();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(start.elapsed() < LEASE);
    let lost = error.downcast_ref::<LeaseLost>().expect("not our error");
    assert_eq!(lost.reason(), Loss::Expired);
    assert_eq!(log.lines(), ["body gone"]);
    assert!(!is_free(&world).await, "a lost lease is not released");
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_behind_its_announced_bytes_is_not_handed_out_whole() {
    let world = World::new();
    let layer = world.builder().renewal(Renewal::Off).build().unwrap();
    let mut response = respond(&layer, Method::PUT, |_| {
        let body = Frames {
            frames: vec!["abcd"],
            ends: false,
            guard: None,
        };
        Response::builder()
            .header("content-length", "4")
            .body(body.boxed_unsync())
            .unwrap()
    })
    .await;
    // Its work goes on under the lease, so the lease cannot be given back before the last byte.
    let error = response.body_mut().frame().await.unwrap().unwrap_err();
    assert!(error.is::<LeaseLost>(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_in_mid_stream_frees_the_key_after_the_body_is_gone() {
    let (world, log) = (World::new(), Log::default());
    let gone = log.clone();
    let mut response = respond(&world.layer(), Method::PUT, move |_| {
        let guard = Some(OnDrop(gone.clone(), "body gone"));
        Response::new(
            Frames {
                frames: vec!["a"],
                ends: false,
                guard,
            }
            .boxed_unsync(),
        )
    })
    .await;
    assert!(
        response
            .body_mut()
            .frame()
            .await
            .unwrap()
            .unwrap()
            .is_data()
    );
    assert!(!is_free(&world).await);
    drop(response);
    assert_eq!(log.lines(), ["body gone"]);
    settle().await;
    assert!(is_free(&world).await);
}

#[tokio::test(start_paused = true)]
async fn frames_count_as_progress() {
    let world = World::new();
    let stall_after = 2 * LEASE;
    let layer = world
        .builder()
        .renewal(Renewal::Progress { stall_after })
        .build()
        .unwrap();
    let response = respond(&layer, Method::PUT, |_| {
        let slow = futures_util::stream::unfold(0, |n| async move {
            tokio::time::sleep(LEASE).await;
            (n < 8).then(|| (Ok::<_, Infallible>(data("a")), n + 1))
        });
        Response::new(StreamBody::new(slow).boxed_unsync())
    })
    .await;
    assert_eq!(text(response.into_body()).await, "a".repeat(8));
}
