//! One request, one row: how each way to end looks on the board.

#![cfg(feature = "layer")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::convert::Infallible;
use std::future::{pending, ready};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_claim::TokioClock;
use tower_claim::http::{Gate, Mode, Switch};
use tower_stage::{
    Board, Cause, Filter, Finished, Stage, StageHandle, StageLayer, WaitReason, mark, wait_on,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn request() -> Request<()> {
    Request::new(())
}

fn only(board: &Board) -> Finished {
    assert_eq!(board.totals().in_flight, 0);
    let recent = board.recent(&Filter::new());
    assert_eq!(recent.len(), 1, "{recent:?}");
    recent[0].clone()
}

fn outcome(board: &Board) -> String {
    only(board).outcome().to_string()
}

/// Frames with 100 ms between them, and after them an error if there is one.
fn frames(
    frames: Vec<Frame<Bytes>>,
    error: bool,
) -> impl Body<Data = Bytes, Error = Failure> + Unpin {
    let frames = frames.into_iter().map(Ok);
    let error = error.then(|| Err(Failure::from("the upstream broke")));
    let steps = futures_util::stream::iter(frames.chain(error));
    StreamBody::new(Box::pin(futures_util::StreamExt::then(
        steps,
        |step| async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            step
        },
    )))
}

fn chunks(n: usize) -> Vec<Frame<Bytes>> {
    (0..n)
        .map(|_| Frame::data(Bytes::from_static(b"chunk")))
        .collect()
}

async fn read_all<B: Body + Unpin>(mut body: B) {
    while let Some(Ok(_)) = body.frame().await {}
}

#[tokio::test]
async fn a_whole_response_is_done_and_its_stages_sum_up() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| async {
            mark(Stage::Validated);
            tokio::task::yield_now().await;
            mark(Stage::Persisted);
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(
                b"twelve bytes",
            ))))
        });
    let body = service.oneshot(request()).await.unwrap().into_body();
    assert_eq!(board.totals().in_flight, 1, "the body is still to come");
    assert_eq!(board.live(&Filter::new())[0].stage(), Stage::Streaming);
    read_all(body).await;

    let row = only(&board);
    assert_eq!(row.outcome().to_string(), "done@streaming");
    assert_eq!((row.bytes(), row.status().unwrap().as_u16()), (12, 200));
    assert_eq!(row.stages().total(), row.total());
    let stages: Vec<_> = row.stages().iter().map(|(stage, _)| stage).collect();
    let entered = [
        Stage::Received,
        Stage::Validated,
        Stage::Persisted,
        Stage::Streaming,
    ];
    assert_eq!(stages, entered);
}

#[tokio::test]
async fn a_response_without_a_body_is_over_at_its_head() {
    for (method, response) in [
        (Method::HEAD, Response::new(Full::<Bytes>::from("as if"))),
        (Method::GET, Response::new(Full::default())),
    ] {
        let board = Board::new();
        let response = Arc::new(response);
        let service = ServiceBuilder::new()
            .layer(StageLayer::new(board.clone()))
            .service_fn(move |_: Request<()>| {
                ready(Ok::<_, Infallible>(response.as_ref().clone()))
            });
        let mut head = request();
        *head.method_mut() = method;
        let _body = service.oneshot(head).await.unwrap();
        assert_eq!(outcome(&board), "done@received");
    }
}

#[test]
fn dropped_before_the_head_is_cancelled_and_leaves_no_row() {
    let board = Board::builder().recent(10_000).build().unwrap();
    let mut service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| pending::<Result<Response<Empty<Bytes>>, Infallible>>());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..10_000 {
        let mut future = Box::pin(service.call(request()));
        assert!(future.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(board.totals(), Board::new().totals());
    let recent = board.recent(&Filter::new().limit(usize::MAX));
    assert_eq!(recent.len(), 10_000);
    for row in recent {
        assert_eq!(row.outcome().to_string(), "cancelled@received");
        assert_eq!(row.status(), None, "nobody was sent a status");
    }
}

#[test]
fn a_call_that_is_never_polled_is_cancelled() {
    let board = Board::new();
    let mut service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| pending::<Result<Response<Empty<Bytes>>, Infallible>>());
    drop(service.call(request()));
    assert_eq!(outcome(&board), "cancelled@received");
}

/// Handler with three awaits and a body of two frames: the future and the body are dropped at each.
#[test]
fn dropped_at_each_await_leaves_one_row_that_says_where() {
    let board = Board::new();
    let mut service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| async {
            tokio::task::yield_now().await;
            mark(Stage::Validated);
            let waits = wait_on(WaitReason::Lease, "a");
            tokio::task::yield_now().await;
            drop(waits);
            mark(Stage::UpstreamCalled);
            tokio::task::yield_now().await;
            mark(Stage::Persisted);
            Ok::<_, Infallible>(Response::new(StreamBody::new(futures_util::stream::iter(
                [
                    Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"one"))),
                    Ok(Frame::data(Bytes::from_static(b"two"))),
                ],
            ))))
        });
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    for (polls, ends) in [
        (0, "cancelled@received"),
        (1, "cancelled@received"),
        (2, "cancelled@validated"),
        (3, "cancelled@upstream_called"),
        (4, "client_gone@streaming"),
        (5, "client_gone@streaming"),
        (6, "client_gone@streaming"),
        (7, "done@streaming"),
    ] {
        // A current-thread runtime, since `yield_now` wants one.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let mut future = Box::pin(service.call(request()));
        let mut body = None;
        for _ in 0..polls {
            match &mut body {
                None => {
                    if let std::task::Poll::Ready(response) = future.as_mut().poll(&mut cx) {
                        body = Some(response.unwrap().into_body());
                    }
                }
                Some(body) => {
                    let _ = Pin::new(body).poll_frame(&mut cx);
                }
            }
        }
        drop((future, body));
        let newest = &board.recent(&Filter::new().limit(1))[0];
        assert_eq!(newest.outcome().to_string(), ends, "after {polls} polls");
        assert_eq!(board.totals().in_flight, 0);
    }
    assert_eq!(board.recent(&Filter::new()).len(), 8);
    assert_eq!(board.totals().late_marks, 0);
}

#[tokio::test]
async fn every_way_to_end_leaves_one_row() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|request: Request<()>| async move {
            match request.uri().path() {
                "/ok" => Ok(Response::new(Empty::<Bytes>::new())),
                "/500" => {
                    let mut response = Response::new(Empty::new());
                    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                    Ok(response)
                }
                "/404" => {
                    let mut response = Response::new(Empty::new());
                    *response.status_mut() = http::StatusCode::NOT_FOUND;
                    Ok(response)
                }
                "/error" => Err(Failure::from("broken")),
                "/panic" => panic!("on command"),
                _ => pending().await,
            }
        });
    for path in ["/ok", "/500", "/404", "/error", "/panic", "/hang"] {
        let request = Request::builder().uri(path).body(()).unwrap();
        let call = AssertUnwindSafe(service.clone().oneshot(request)).catch_unwind();
        let _ = tokio::time::timeout(Duration::from_millis(20), call).await;
    }
    let of = |cause| board.recent(&Filter::new().outcome(cause)).len();
    assert_eq!(of(Cause::Done), 2, "200, and 404: the client's affair");
    assert_eq!(of(Cause::Failed), 2);
    assert_eq!(of(Cause::Panicked), 1);
    assert_eq!(of(Cause::Cancelled), 1);
    assert_eq!(board.recent(&Filter::new()).len(), 6);
    assert_eq!(board.totals().in_flight, 0);
}

#[tokio::test]
async fn a_panic_is_no_hang_up_and_passes_through() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| async {
            mark(Stage::UpstreamCalled);
            tokio::task::yield_now().await;
            if StageHandle::current().is_live() {
                panic!("on command");
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
    let joined = tokio::spawn(service.oneshot(request())).await;
    assert!(joined.unwrap_err().is_panic());
    assert_eq!(outcome(&board), "panicked@upstream_called");
    assert!(!StageHandle::current().is_live(), "nothing stays current");
}

#[tokio::test]
async fn a_panic_in_the_call_itself_is_seen() {
    let board = Board::new();
    let mut service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| {
            assert!(!StageHandle::current().is_live(), "on command");
            ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
        });
    let called = std::panic::catch_unwind(AssertUnwindSafe(|| service.call(request())));
    assert!(called.is_err());
    assert_eq!(outcome(&board), "panicked@received");
    assert!(!StageHandle::current().is_live(), "nothing stays current");
}

#[tokio::test]
async fn a_panic_in_the_body_is_seen() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| {
            let stream = futures_util::stream::poll_fn(
                |_| -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                    panic!("on command")
                },
            );
            ready(Ok::<_, Infallible>(Response::new(StreamBody::new(stream))))
        });
    let body = service.oneshot(request()).await.unwrap().into_body();
    assert!(tokio::spawn(read_all(body)).await.unwrap_err().is_panic());
    assert_eq!(outcome(&board), "panicked@streaming");
}

#[tokio::test(start_paused = true)]
async fn a_body_error_fails_once_and_counts_from_the_start() {
    let board = Board::builder()
        .clock(Arc::new(TokioClock::new()))
        .build()
        .unwrap();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| {
            ready(Ok::<_, Failure>(Response::new(frames(chunks(4), true))))
        });
    let body = service.oneshot(request()).await.unwrap().into_body();
    assert!(body.collect().await.is_err());
    let row = only(&board);
    assert_eq!(row.outcome().to_string(), "failed@streaming");
    assert_eq!(row.status().unwrap(), 200, "it was sent");
    assert!((500..510).contains(&row.total().as_millis()), "{row:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_dropped_in_mid_stream_is_no_success() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| {
            ready(Ok::<_, Failure>(Response::new(frames(chunks(4), false))))
        });
    let mut body = service.oneshot(request()).await.unwrap().into_body();
    assert!(body.frame().await.is_some());
    drop(body);
    let row = only(&board);
    assert_eq!(row.outcome().to_string(), "client_gone@streaming");
    assert_eq!(row.outcome().code(), "GS");
    assert_eq!((row.bytes(), row.status().unwrap().as_u16()), (5, 200));
}

#[tokio::test(start_paused = true)]
async fn a_grpc_status_is_read_where_it_is() {
    let trailers = |code: Option<&'static str>| {
        let mut map = HeaderMap::new();
        if let Some(code) = code {
            map.insert("grpc-status", HeaderValue::from_static(code));
        }
        map
    };
    let data = || chunks(1);
    for (head, body, code, ends) in [
        (None, Some(Some("13")), Some(13), "failed@streaming"),
        (None, Some(Some("0")), Some(0), "done@streaming"),
        (None, Some(Some("x")), Some(2), "failed@streaming"),
        (None, Some(None), Some(2), "failed@streaming"),
        (None, None, Some(2), "failed@streaming"),
        (Some("5"), None, Some(5), "done@streaming"),
    ] {
        let board = Board::new();
        let service = ServiceBuilder::new()
            .layer(StageLayer::new(board.clone()))
            .service_fn(|_: Request<()>| {
                let mut all = data();
                all.extend(body.map(|code| Frame::trailers(trailers(code))));
                let mut response = Response::new(frames(all, false));
                *response.headers_mut() = trailers(head);
                let kind = HeaderValue::from_static("application/grpc");
                response.headers_mut().insert("content-type", kind);
                // Announced and complete, but the status is still to come.
                response
                    .headers_mut()
                    .insert("content-length", HeaderValue::from_static("5"));
                ready(Ok::<_, Failure>(response))
            });
        read_all(service.oneshot(request()).await.unwrap().into_body()).await;
        let row = only(&board);
        assert_eq!(row.outcome().to_string(), ends);
        assert_eq!(row.grpc_status(), code);
    }
}

#[tokio::test]
async fn an_upgrade_is_no_long_request() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| {
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            ready(Ok::<_, Infallible>(response))
        });
    let _response = service.oneshot(request()).await.unwrap();
    assert_eq!(outcome(&board), "upgraded@received");
}

#[tokio::test]
async fn what_a_sibling_says_of_the_end_counts() {
    for (says, ends) in [
        (
            StageHandle::rejected as fn(&StageHandle),
            "rejected@received",
        ),
        (StageHandle::timed_out, "timed_out@received"),
        (StageHandle::panicked, "panicked@received"),
    ] {
        let board = Board::new();
        let service = ServiceBuilder::new()
            .layer(StageLayer::new(board.clone()))
            .service_fn(move |request: Request<()>| {
                says(&StageHandle::of(request.extensions()));
                ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
            });
        service.oneshot(request()).await.unwrap();
        assert_eq!(outcome(&board), ends);
    }
}

#[tokio::test]
async fn a_drop_in_shutdown_is_told_apart() {
    let board = Board::new();
    let mut service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| pending::<Result<Response<Empty<Bytes>>, Infallible>>());
    let call = service.call(request());
    board.shutting_down();
    assert_eq!(board.live(&Filter::new()).len(), 1, "who holds it up");
    drop(call);
    assert_eq!(outcome(&board), "shutdown@received");
}

#[tokio::test]
async fn two_layers_make_one_row() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .layer(StageLayer::new(board.clone()))
        .service_fn(|request: Request<()>| async move {
            StageHandle::of(request.extensions()).mark(Stage::Validated);
            mark(Stage::Persisted);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
    service.oneshot(request()).await.unwrap();
    let row = only(&board);
    assert_eq!(row.outcome().to_string(), "done@persisted");
    assert!(row.stages().get(Stage::Validated).is_some());
}

#[test]
fn a_full_table_serves_on_and_counts() {
    let board = Board::builder().max_tracked(100).build().unwrap();
    let mut service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .layer(StageLayer::new(board.clone()))
        .service_fn(|request: Request<()>| {
            let live = StageHandle::of(request.extensions()).is_live();
            async move {
                let () = if live {
                    pending().await
                };
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
    let leaked: Vec<_> = (0..100).map(|_| service.call(request())).collect();
    for _ in 0..900 {
        let response = service.call(request()).now_or_never();
        assert!(response.unwrap().is_ok(), "it is served all the same");
    }
    let totals = board.totals();
    assert_eq!((totals.in_flight, totals.untracked), (100, 900));
    drop(leaked);
    assert_eq!(board.totals().in_flight, 0);
    drop(service.call(request()));
    assert_eq!(board.totals().untracked, 900, "there is room again");
}

#[tokio::test]
async fn the_board_keeps_nothing_of_what_the_client_sent() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(
            StageLayer::builder(board.clone())
                .route(|parts| Some(parts.uri.path().to_owned().into()))
                .build()
                .unwrap(),
        )
        .service_fn(|_: Request<()>| {
            ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
        });
    let long = format!(
        "/{}",
        "é".repeat(10).as_str().replace('é', "x").repeat(1_000)
    );
    let request = Request::builder()
        .method("SCANNER")
        .uri(&long)
        .body(())
        .unwrap();
    service.oneshot(request).await.unwrap();
    let row = only(&board);
    assert_eq!(row.route().len(), 256);
    assert_eq!(row.method(), "_OTHER");
}

#[tokio::test]
async fn an_inner_rewrite_changes_no_row() {
    let board = Board::new();
    let inner = ServiceBuilder::new()
        .layer(
            StageLayer::builder(board.clone())
                .route(|parts| Some(parts.uri.path().to_owned().into()))
                .build()
                .unwrap(),
        )
        .map_request(|mut request: Request<()>| {
            *request.method_mut() = Method::DELETE;
            *request.uri_mut() = "/rewritten".parse().unwrap();
            request.extensions_mut().clear();
            request
        })
        .service_fn(|_: Request<()>| async {
            mark(Stage::Persisted);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
    let request = Request::builder().uri("/asked").body(()).unwrap();
    inner.oneshot(request).await.unwrap();
    let row = only(&board);
    assert_eq!((row.method(), row.route()), ("GET", "/asked"));
    assert_eq!(row.outcome().to_string(), "done@persisted");
}

#[tokio::test]
async fn a_gate_lets_requests_pass_without_a_row() {
    let board = Board::new();
    let switch = Switch::default();
    let gate = Gate::new().methods([Method::POST]).switch(switch.clone());
    let service = ServiceBuilder::new()
        .layer(
            StageLayer::builder(board.clone())
                .gate(gate)
                .build()
                .unwrap(),
        )
        .service_fn(|_: Request<()>| async {
            mark(Stage::Persisted);
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("x")))
        });
    let rows = async |method: Method| {
        let mut request = request();
        *request.method_mut() = method;
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(
            response.into_body().collect().await.unwrap().to_bytes(),
            "x"
        );
        board.recent(&Filter::new()).len()
    };
    assert_eq!(rows(Method::GET).await, 0);
    assert_eq!(rows(Method::POST).await, 1);
    switch.set(Mode::Off);
    assert_eq!(rows(Method::POST).await, 1);
    assert_eq!(board.totals().late_marks, 0);
}

#[tokio::test]
async fn marks_after_the_end_are_counted_and_harmless() {
    let board = Board::new();
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = std::sync::Mutex::new(Some(tell));
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|request: Request<()>| {
            let handle = StageHandle::of(request.extensions());
            tell.lock().unwrap().take().unwrap().send(handle).unwrap();
            ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
        });
    service.oneshot(request()).await.unwrap();
    let handle = told.await.unwrap();
    assert!(!handle.is_live());
    handle.mark(Stage::Persisted);
    drop(handle.wait_on(WaitReason::Flight, 1));
    assert_eq!(outcome(&board), "done@received");
    assert_eq!(board.totals().late_marks, 2);
}

#[tokio::test]
async fn a_scope_carries_the_row_into_a_spawned_task() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| async {
            let work = async {
                tokio::task::yield_now().await;
                mark(Stage::Persisted);
            };
            let unscoped = tokio::spawn(async { StageHandle::current().is_live() });
            assert!(!unscoped.await.unwrap());
            tokio::spawn(StageHandle::current().scope(work))
                .await
                .unwrap();
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
    service.oneshot(request()).await.unwrap();
    assert_eq!(outcome(&board), "done@persisted");
    assert!(!StageHandle::current().is_live());
}

#[test]
fn a_wait_is_shown_and_a_cancelled_waiter_leaves_none() {
    let board = Board::new();
    let mut service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service_fn(|_: Request<()>| async {
            let waiter = async {
                let _waits = wait_on(WaitReason::Flight, String::from("flight-7"));
                pending::<()>().await;
            };
            let mut waiter = Some(Box::pin(waiter));
            let mut polls = 0;
            std::future::poll_fn(move |cx| {
                polls += 1;
                match &mut waiter {
                    Some(waiting) if polls == 1 => waiting.as_mut().poll(cx),
                    _ => {
                        waiter = None;
                        std::task::Poll::Pending
                    }
                }
            })
            .await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
    let mut call = Box::pin(service.call(request()));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut shown = || {
        assert!(call.as_mut().poll(&mut cx).is_pending());
        let live = board.live(&Filter::new());
        live[0].wait().map(|w| (w.reason, w.blocker.to_string()))
    };
    assert_eq!(shown(), Some((WaitReason::Flight, "flight-7".to_owned())));
    assert_eq!(shown(), None);
}

#[tokio::test]
async fn an_unready_clone_is_never_called() {
    #[derive(Default)]
    struct Strict {
        ready: bool,
    }
    impl Clone for Strict {
        fn clone(&self) -> Self {
            Self::default()
        }
    }
    impl Service<Request<()>> for Strict {
        type Response = Response<Empty<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Infallible>> {
            self.ready = true;
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            assert!(
                std::mem::take(&mut self.ready),
                "called without being ready"
            );
            ready(Ok(Response::new(Empty::new())))
        }
    }

    let board = Board::new();
    let layer = StageLayer::new(board.clone());
    let mut plain = ServiceBuilder::new()
        .layer(layer.clone())
        .service(Strict::default());
    let mut aware = ServiceBuilder::new()
        .layer(layer.queue_aware())
        .service(Strict::default());
    for _ in 0..3 {
        plain.ready().await.unwrap().call(request()).await.unwrap();
        let mut clone = plain.clone();
        clone.ready().await.unwrap().call(request()).await.unwrap();
        aware.ready().await.unwrap().call(request()).await.unwrap();
    }
    assert_eq!(board.recent(&Filter::new()).len(), 9);
}

/// Three callers of a handler of 200 ms under a limit of one, in one stack.
async fn under_a_limit_of_one(queue_aware: bool) -> Vec<Finished> {
    let clock = Arc::new(TokioClock::new());
    let board = Board::builder().clock(clock).build().unwrap();
    let layer = StageLayer::new(board.clone());
    let handler = service_fn(|_: Request<()>| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let limited = ServiceBuilder::new().concurrency_limit(1).service(handler);
    let calls = (0..3).map(|_| async {
        if queue_aware {
            let service = ServiceBuilder::new()
                .layer(layer.clone().queue_aware())
                .service(limited.clone());
            drop(service.oneshot(request()).await);
        } else {
            let service = ServiceBuilder::new()
                .layer(layer.clone())
                .service(limited.clone());
            drop(service.oneshot(request()).await);
        }
    });
    futures_util::future::join_all(calls).await;
    let mut rows = board.recent(&Filter::new());
    rows.reverse();
    rows
}

#[tokio::test(start_paused = true)]
async fn a_queue_aware_layer_sees_the_wait_for_a_permit() {
    let queued: Vec<_> = under_a_limit_of_one(true)
        .await
        .iter()
        .map(|row| row.stages().get(Stage::Queued).map_or(0, |t| t.as_millis()))
        .collect();
    assert!(
        matches!(queued[..], [0, 200..=203, 400..=406]),
        "{queued:?}"
    );

    let plain = under_a_limit_of_one(false).await;
    assert!(
        plain.iter().all(|row| row.total().as_millis() < 250),
        "an ordinary layer's clock starts when the service is ready"
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_the_queue_gives_up_its_place() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()).queue_aware())
        .concurrency_limit(1)
        .service_fn(|_: Request<()>| async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
    let first = tokio::spawn(service.clone().oneshot(request()));
    tokio::task::yield_now().await;
    let second = Box::pin(service.clone().oneshot(request()));
    let left = tokio::time::timeout(Duration::from_millis(50), second).await;
    assert!(left.is_err());
    let gone = &board.recent(&Filter::new())[0];
    assert_eq!(gone.outcome().to_string(), "cancelled@queued");
    first.await.unwrap().unwrap();
    service.oneshot(request()).await.unwrap();
    assert_eq!(board.totals().in_flight, 0);
}
