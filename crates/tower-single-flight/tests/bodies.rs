//! Bodies that are shared: whole, with trailers, and never with a broken end that looks like a clean one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::*;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use tower_single_flight::http::FlightBody;

fn data(text: &'static str) -> Result<Frame<Bytes>, Down> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())])
}

/// A body of unknown length, `pause` before each frame.
fn frames(frames: Vec<Result<Frame<Bytes>, Down>>, pause: Duration) -> TestBody {
    let frames = stream::iter(frames).then(move |frame| async move {
        if !pause.is_zero() {
            sleep(pause).await;
        }
        frame
    });
    StreamBody::new(frames).boxed_unsync()
}

fn endless(pause: Duration) -> TestBody {
    let frames = stream::repeat_with(|| data("tick ")).then(move |frame| async move {
        sleep(pause).await;
        frame
    });
    StreamBody::new(frames).boxed_unsync()
}

fn with_length(body: TestBody, length: u64) -> TestResponse {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert("content-length", length.into());
    response
}

#[tokio::test(start_paused = true)]
async fn all_get_the_whole_body_and_its_trailers() {
    let app = App::new(|_, _| {
        let trailers = Ok(Frame::trailers(trailers()));
        Response::new(frames(
            vec![data("one "), data(""), data("two"), trailers],
            MS,
        ))
    });
    let answers = app.at_once(10, get("/x")).await;
    for answer in answers {
        assert_eq!(answer.body, "one two");
        assert_eq!(answer.end.unwrap().unwrap(), trailers());
    }
    assert_eq!(app.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lone_leaders_body_streams_untouched_and_closes_the_flight_at_its_head() {
    let app = App::new(|_, _| Response::new(endless(10 * MS)));
    let response = app.service.clone().oneshot(get("/x")).await.unwrap();
    assert_eq!(app.layer.flights(), 0, "closed at the head");
    let mut body = response.into_body();
    for _ in 0..3 {
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "tick ");
    }
    let second = app.service.clone().oneshot(get("/x")).await;
    assert_eq!(second.unwrap().status(), 200);
    assert_eq!(app.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_never_looks_whole() {
    for n in [1, 5] {
        let app = App::new(|_, _| Response::new(frames(vec![data("half"), Err(Down)], MS)));
        let mut answers = app.at_once(n, get("/x")).await.into_iter();
        let leader = answers.next().unwrap();
        assert_eq!(
            (leader.status.as_u16(), leader.body.as_str()),
            (200, "half")
        );
        assert_eq!(leader.end, Err(Down), "the leader sees what happened");
        for follower in answers {
            assert_eq!(follower.status, 502);
            assert!(follower.body.contains("\"code\":\"upstream-failed\""));
        }
        assert_eq!(app.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_another_length_than_promised_is_no_answer() {
    for length in [3, 400] {
        let app = App::new(move |_, _| with_length(frames(vec![data("four")], MS), length));
        let answers = app.at_once(3, get("/x")).await;
        // The leader's length header stays, so the host's own check of it still speaks.
        assert_eq!(answers[0].headers["content-length"], length.to_string());
        assert_eq!(answers[0].body, "four");
        assert!(answers[1..].iter().all(|a| a.status == 502));
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_response_keeps_the_length_it_speaks_of() {
    let app = App::new(|_, _| with_length(body(""), 4_000_000));
    let mut head = get("/x");
    *head.method_mut() = Method::HEAD;
    let answers = app.at_once(5, head).await;
    for answer in answers {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers["content-length"], "4000000");
    }
    assert_eq!(app.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn over_the_limit_followers_go_alone_and_the_leader_streams_on() {
    let cases: [fn() -> TestResponse; 3] = [
        || with_length(body(vec![b'x'; 3_000]), 3_000),
        || Response::new(body(vec![b'x'; 3_000])),
        || Response::new(frames(vec![data(X1000), data(X1000), data(X1000)], 10 * MS)),
    ];
    for make in cases {
        let layer = builder().max_body(2_500).build().unwrap();
        let app = App::with(layer, move |_, _| make());
        let answers = app.at_once(4, get("/x")).await;
        assert!(
            answers
                .iter()
                .all(|a| a.status == 200 && a.body.len() == 3_000)
        );
        assert_eq!(app.calls(), 4);
    }
}

const X1000: &str = match std::str::from_utf8(&[b'x'; 1_000]) {
    Ok(text) => text,
    Err(_) => "",
};

#[tokio::test(start_paused = true)]
async fn at_the_limit_a_body_is_still_shared() {
    let layer = builder().max_body(3_000).build().unwrap();
    let app = App::with(layer, |_, _| Response::new(body(vec![b'x'; 3_000])));
    let answers = app.at_once(4, get("/x")).await;
    assert!(answers.iter().all(|a| a.body.len() == 3_000));
    assert_eq!(app.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_endless_body_holds_nobody_up_for_long() {
    let app = App::new(|_, n| {
        let mut response = Response::new(endless(300 * MS));
        response.headers_mut().insert("x-call", n.into());
        response
    });
    let began = Instant::now();
    let one = || async {
        let response = app.service.clone().oneshot(get("/x")).await.unwrap();
        let head = began.elapsed();
        let call = response.headers()["x-call"].clone();
        let mut body = response.into_body();
        let mut text = Vec::new();
        while text.len() < 25 {
            text.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        (head, call, text)
    };
    let (leader, a, b) = tokio::join!(one(), one(), one());
    assert_eq!(leader.1, "1", "the leader keeps its own");
    assert!(
        leader.2.starts_with(b"tick tick tick "),
        "from its beginning"
    );
    for follower in [a, b] {
        assert_ne!(follower.1, "1");
        assert_eq!(
            follower.0,
            1_040 * MS,
            "1 s to see that it has no end, one call of its own"
        );
    }
    assert_eq!(app.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_of_known_length_is_collected() {
    let app = App::new(|_, _| with_length(frames(vec![data("ab"), data("cd")], 900 * MS), 4));
    let answers = app.at_once(3, get("/x")).await;
    assert!(answers.iter().all(|a| a.body == "abcd"));
    assert_eq!(app.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_joins_while_the_body_is_collected_gets_it_too() {
    let app = App::new(|_, _| Response::new(frames(vec![data("a"), data("b")], 100 * MS)));
    let early = [app.spawn(get("/x")), app.spawn(get("/x"))];
    sleep(150 * MS).await;
    assert_eq!(app.send(get("/x")).await.body, "ab");
    for caller in early {
        assert_eq!(caller.await.unwrap().body, "ab");
    }
    assert_eq!(app.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_hangs_up_during_the_body_spoils_none() {
    let app = App::new(|_, _| Response::new(frames(vec![data("a"), data("b")], 100 * MS)));
    let leader = app.spawn(get("/x"));
    sleep(MS).await;
    let followers = [(); 5].map(|()| app.spawn(get("/x")));
    sleep(150 * MS).await;
    leader.abort();
    for follower in followers {
        assert_eq!(follower.await.unwrap().body, "ab");
    }
    assert_eq!(app.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_byte_frames_hold_no_more_memory_than_their_bytes() {
    let app = App::new(|_, _| {
        Response::new(frames(
            (0..2_000).map(|_| data("x")).collect(),
            Duration::ZERO,
        ))
    });
    let mut responses = Vec::new();
    let calls = [(); 2].map(|()| app.service.clone().oneshot(get("/x")));
    for response in futures_util::future::join_all(calls).await {
        responses.push(response.unwrap());
    }
    for response in responses {
        let mut body = response.into_body();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap().len(), 2_000, "one frame");
        assert!(body.is_end_stream());
    }
}

#[test]
fn hints_are_exact() {
    let empty = FlightBody::<TestBody>::default();
    assert!(empty.is_end_stream());
    assert_eq!(empty.size_hint().exact(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn the_hints_of_a_shared_body_are_those_of_its_bytes() {
    let app = App::new(|_, _| Response::new(frames(vec![data("abcd")], MS)));
    let calls = [(); 2].map(|()| app.service.clone().oneshot(get("/x")));
    for response in futures_util::future::join_all(calls).await {
        let body = response.unwrap().into_body();
        assert_eq!(
            (body.size_hint().exact(), body.is_end_stream()),
            (Some(4), false)
        );
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcd");
    }
}
