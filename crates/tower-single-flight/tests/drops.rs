//! An HTTP caller that is dropped at any of its awaits spoils nobody else and leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use common::*;
use futures_util::FutureExt;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::task::yield_now;
use tower::{Layer, ServiceExt, service_fn};
use tower_claim::http::{Gate, Mode, Switch};

/// Pending once: each of these is an await to be dropped at.
async fn turn() {
    yield_now().await;
}

/// What the flight comes to, and so which awaits a caller passes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Shared,
    Personal,
    Varied,
    Failed,
    Passed,
    Observed,
}

struct NeverReadyAtOnce<S>(S, bool);

impl<S: Clone> Clone for NeverReadyAtOnce<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), false)
    }
}

impl<S: tower::Service<R>, R> tower::Service<R> for NeverReadyAtOnce<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<(), S::Error>> {
        if std::mem::replace(&mut self.1, true) {
            return self.0.poll_ready(cx);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(request)
    }
}

async fn answer(kind: Kind) -> Result<TestResponse, Down> {
    turn().await;
    turn().await;
    if kind == Kind::Failed {
        return Err(Down);
    }
    let frames = stream::unfold(0, |n| async move {
        turn().await;
        (n < 2).then(|| (Ok(Frame::data(Bytes::from_static(b"x"))), n + 1))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    match kind {
        Kind::Personal => drop(headers.insert("set-cookie", "s=1".parse().unwrap())),
        Kind::Varied => drop(headers.insert("vary", "x-kind".parse().unwrap())),
        _ => {}
    }
    Ok(response)
}

/// Drops one of three callers after `polls` of its polls. Tells whether it was dropped before its end.
async fn drop_one(kind: Kind, which: usize, polls: usize) -> bool {
    let alive = Arc::new(());
    let calls = Arc::clone(&alive);
    let mut builder = builder();
    if kind == Kind::Observed {
        builder = builder.gate(Gate::new().switch(Switch::new(Mode::Observe)));
    }
    let layer = builder.build().unwrap();
    let inner = service_fn(move |_: http::Request<TestBody>| {
        let running = Arc::clone(&calls);
        async move {
            let answer = answer(kind).await;
            drop(running);
            answer
        }
    });
    let service = layer.layer(NeverReadyAtOnce(inner, false));
    let request = |n: usize| match kind {
        Kind::Passed => with_header("range", "bytes=0-9"),
        Kind::Varied => with_header("x-kind", if n == 0 { "a" } else { "b" }),
        _ => get("/x"),
    };
    let caller = |n| {
        let response = service.clone().oneshot(request(n));
        async move {
            match response.await {
                Ok(response) => Ok(Answer::of(response).await),
                Err(error) => Err(error),
            }
        }
        .boxed()
    };
    let mut callers: Vec<_> = (0..3).map(|n| Some(caller(n))).collect();
    let (mut results, mut cut) = (Vec::new(), false);
    for round in 0.. {
        assert!(round < 1_000, "{kind:?}: no end");
        for (n, place) in callers.iter_mut().enumerate() {
            if n == which && round == polls && place.take().is_some() {
                cut = true;
            }
            let Some(caller) = place else { continue };
            let polled = poll_fn(|cx| Poll::Ready(caller.poll_unpin(cx))).await;
            if let Poll::Ready(result) = polled {
                results.push(result);
                *place = None;
            }
        }
        if callers.iter().all(Option::is_none) {
            break;
        }
        turn().await;
    }
    for result in results {
        match (kind, result) {
            (Kind::Failed, Err(Down)) => {}
            (Kind::Failed, Ok(refused)) => assert_eq!(refused.status, 502),
            (_, result) => {
                let answer = result.unwrap();
                assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "xx"));
                assert!(answer.end.is_ok());
            }
        }
    }
    assert!(layer.drain(MS).await);
    assert_eq!((layer.flights(), layer.followers()), (0, 0));
    drop(service);
    assert_eq!(Arc::strong_count(&alive), 1, "{kind:?}: nothing runs on");
    cut
}

#[test]
fn a_caller_dropped_at_any_await_spoils_no_other() {
    use Kind::*;
    for kind in [Shared, Personal, Varied, Failed, Passed, Observed] {
        paused(async move {
            for which in 0..3 {
                let mut polls = 0;
                while drop_one(kind, which, polls).await {
                    polls += 1;
                }
                assert!(polls >= 3, "{kind:?}: only {polls} awaits");
            }
        });
    }
}
