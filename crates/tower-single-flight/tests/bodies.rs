//! Bodies that are shared: whole, with trailers, and never with a broken end that looks like a clean one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use tower_single_flight::SingleFlightLayer;
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

#[test]
fn all_get_the_whole_body_and_its_trailers() {
    paused(async {
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
    });
}

#[test]
fn a_lone_leaders_body_streams_untouched_and_closes_the_flight_at_its_head() {
    paused(async {
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
    });
}

#[test]
fn a_body_that_breaks_off_never_looks_whole() {
    paused(async {
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
    });
}

#[test]
fn a_body_of_another_length_than_promised_is_no_answer() {
    paused(async {
        for length in [3, 400] {
            let app = App::new(move |_, _| with_length(frames(vec![data("four")], MS), length));
            let answers = app.at_once(3, get("/x")).await;
            // The leader's length header stays, so the host's own check of it still speaks.
            assert_eq!(answers[0].headers["content-length"], length.to_string());
            assert_eq!(answers[0].body, "four");
            assert!(answers[1..].iter().all(|a| a.status == 502));
        }
    });
}

/// A body whose own hint says more than comes.
struct Liar(Option<Bytes>, u64);

impl Body for Liar {
    type Data = Bytes;
    type Error = Down;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Down>>> {
        Poll::Ready(self.0.take().map(|data| Ok(Frame::data(data))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(self.1 - 4, |_| self.1))
    }
}

#[test]
fn a_body_that_is_shorter_than_its_hint_is_no_answer_and_keeps_its_promise() {
    paused(async {
        let app = App::new(|_, _| {
            let short = Liar(Some(Bytes::from_static(b"four")), 9);
            Response::new(short.boxed_unsync())
        });
        let calls = [(); 2].map(|()| app.service.clone().oneshot(get("/x")));
        let mut responses = join_all(calls).await.into_iter();
        let mut leaders = responses.next().unwrap().unwrap().into_body();
        // The host makes the length header of the hint, and sees at the end that it was not kept.
        assert_eq!(leaders.size_hint().exact(), Some(9));
        let frame = leaders.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "four");
        assert!(leaders.frame().await.is_none());
        assert_eq!(responses.next().unwrap().unwrap().status(), 502);
    });
}

/// Frames of nothing, always ready: neither the time nor any other task would have its turn.
#[test]
fn a_body_that_is_busy_for_ever_holds_nobody_up_for_long() {
    on_a_thread(|| {
        real(async {
            let layer = SingleFlightLayer::builder()
                .unsized_body_wait(50 * MS)
                .build()
                .unwrap();
            let app = App::with(layer, |_, n| match n {
                1 => {
                    Response::new(StreamBody::new(stream::repeat_with(|| data(""))).boxed_unsync())
                }
                _ => ok("x"),
            });
            let leader = tokio::spawn(app.service.clone().oneshot(get("/x")));
            let follower = app.spawn(get("/x"));
            assert_eq!(follower.await.unwrap().body, "x");
            assert_eq!(leader.await.unwrap().unwrap().status(), 200);
        });
    });
}

#[test]
fn trailers_of_one_callers_own_are_not_copied() {
    paused(async {
        for (name, calls) in [("set-cookie", 3), ("server-timing", 1)] {
            let app = App::new(move |_, _| {
                let trailers =
                    HeaderMap::from_iter([(name.parse().unwrap(), "x".parse().unwrap())]);
                Response::new(frames(vec![data("x"), Ok(Frame::trailers(trailers))], MS))
            });
            let answers = app.at_once(3, get("/x")).await;
            assert_eq!(app.calls(), calls, "{name}");
            let leaders = answers[0].end.as_ref().unwrap().as_ref().unwrap();
            assert!(leaders.contains_key(name), "the leader's own, untouched");
            if calls == 1 {
                for follower in &answers[1..] {
                    let trailers = follower.end.as_ref().unwrap().as_ref();
                    assert!(trailers.is_none_or(HeaderMap::is_empty), "{trailers:?}");
                }
            }
        }
    });
}

#[test]
fn a_head_response_keeps_the_length_it_speaks_of() {
    paused(async {
        let app = App::new(|_, _| with_length(body(""), 4_000_000));
        let mut head = get("/x");
        *head.method_mut() = Method::HEAD;
        let answers = app.at_once(5, head).await;
        for answer in answers {
            assert_eq!(answer.status, 200);
            assert_eq!(answer.headers["content-length"], "4000000");
        }
        assert_eq!(app.calls(), 1);
    });
}

#[test]
fn over_the_limit_followers_go_alone_and_the_leader_streams_on() {
    paused(async {
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
    });
}

const X1000: &str = match std::str::from_utf8(&[b'x'; 1_000]) {
    Ok(text) => text,
    Err(_) => "",
};

#[test]
fn at_the_limit_a_body_is_still_shared() {
    paused(async {
        let layer = builder().max_body(3_000).build().unwrap();
        let app = App::with(layer, |_, _| Response::new(body(vec![b'x'; 3_000])));
        let answers = app.at_once(4, get("/x")).await;
        assert!(answers.iter().all(|a| a.body.len() == 3_000));
        assert_eq!(app.calls(), 1);
    });
}

#[test]
fn an_endless_body_holds_nobody_up_for_long() {
    paused(async {
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
    });
}

#[test]
fn a_slow_body_of_known_length_is_collected() {
    paused(async {
        let app = App::new(|_, _| with_length(frames(vec![data("ab"), data("cd")], 900 * MS), 4));
        let answers = app.at_once(3, get("/x")).await;
        assert!(answers.iter().all(|a| a.body == "abcd"));
        assert_eq!(app.calls(), 1);
    });
}

#[test]
fn who_joins_while_the_body_is_collected_gets_it_too() {
    paused(async {
        let app = App::new(|_, _| Response::new(frames(vec![data("a"), data("b")], 100 * MS)));
        let early = [app.spawn(get("/x")), app.spawn(get("/x"))];
        sleep(150 * MS).await;
        assert_eq!(app.send(get("/x")).await.body, "ab");
        for caller in early {
            assert_eq!(caller.await.unwrap().body, "ab");
        }
        assert_eq!(app.calls(), 1);
    });
}

#[test]
fn a_leader_that_hangs_up_during_the_body_spoils_none() {
    paused(async {
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
    });
}

#[test]
fn one_byte_frames_hold_no_more_memory_than_their_bytes() {
    paused(async {
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
    });
}

#[test]
fn hints_are_exact() {
    let empty = FlightBody::<TestBody>::default();
    assert!(empty.is_end_stream());
    assert_eq!(empty.size_hint().exact(), Some(0));
}

#[test]
fn the_hints_of_a_shared_body_are_those_of_its_bytes() {
    paused(async {
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
    });
}
