//! What a reader of the board sees.

#![cfg(feature = "layer")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_claim::testing::ManualClock;
use tower_stage::{
    Board, Cause, Filter, Stage, StageHandle, StageLayer, WaitReason, mark, wait_on,
};

fn request(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

fn layer(board: &Board) -> StageLayer {
    StageLayer::builder(board.clone())
        .route(|parts| Some(parts.uri.path().to_owned().into()))
        .build()
        .unwrap()
}

fn page(board: &Board, filter: &Filter) -> Value {
    serde_json::from_str(&board.json(filter)).unwrap()
}

/// The JSON is a contract: programs in other languages read it.
#[tokio::test]
async fn the_json_of_a_board_looks_like_this() {
    let clock = ManualClock::new();
    let board = Board::builder()
        .clock(Arc::new(clock.clone()))
        .build()
        .unwrap();
    let passes = clock.clone();
    let mut service =
        ServiceBuilder::new()
            .layer(layer(&board))
            .service_fn(move |request: Request<()>| {
                let clock = passes.clone();
                async move {
                    clock.advance(Duration::from_micros(1_500));
                    if request.uri().path() == "/stuck" {
                        mark(Stage::UpstreamCalled);
                        let _waits = wait_on(WaitReason::Flight, 8812);
                        pending::<()>().await;
                    }
                    mark(Stage::Persisted);
                    clock.advance(Duration::from_millis(2));
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
                }
            });

    let done = service.call(request("/done")).await.unwrap();
    clock.advance(Duration::from_micros(250));
    done.into_body().collect().await.unwrap();
    let mut stuck = Box::pin(service.call(request("/stuck")));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(stuck.as_mut().poll(&mut cx).is_pending());
    clock.advance(Duration::from_micros(2_000_001));

    let expected = json!({
        "version": 1,
        "totals": {"in_flight": 1, "untracked": 0, "late_marks": 0},
        "live": [{
            "id": "63-2",
            "method": "GET",
            "route": "/stuck",
            "stage": "upstream_called",
            "age_ms": 2000.001,
            "total_age_ms": 2001.501,
            "wait": {"reason": "flight", "blocker": "8812"},
            "stuck": true,
        }],
        "recent": [{
            "id": "63-1",
            "method": "GET",
            "route": "/done",
            "outcome": "done",
            "stage": "streaming",
            "status": 200,
            "bytes": 5,
            "total_ms": 3.75,
            "stages": {"received": 1.5, "persisted": 2.0, "streaming": 0.25},
        }],
    });
    let mut seen = page(&board, &Filter::new());
    // Which slot a request gets is nobody's business.
    for list in ["live", "recent"] {
        let id = seen[list][0]["id"].take();
        assert!(id.as_str().unwrap().contains('-'), "{id}");
        seen[list][0]["id"] = expected[list][0]["id"].clone();
    }
    assert_eq!(seen, expected);

    drop(stuck);
    let cancelled = &page(&board, &Filter::new())["recent"][0];
    assert_eq!(cancelled["outcome"], "cancelled");
    assert_eq!(cancelled["status"], Value::Null);
}

#[test]
fn filters_choose_rows_and_never_the_totals() {
    let clock = ManualClock::new();
    let board = Board::builder()
        .clock(Arc::new(clock.clone()))
        .stuck_after_in(Stage::Validated, Duration::from_secs(60))
        .never_stuck_in(Stage::Persisted)
        .build()
        .unwrap();
    let mut service =
        ServiceBuilder::new()
            .layer(layer(&board))
            .service_fn(|request: Request<()>| async move {
                match request.uri().path() {
                    "/validated" => mark(Stage::Validated),
                    "/persisted" => mark(Stage::Persisted),
                    _ => {}
                }
                pending::<Result<Response<Full<Bytes>>, Infallible>>().await
            });
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut calls = Vec::new();
    for path in ["/received", "/validated", "/persisted"] {
        let mut call = Box::pin(service.call(request(path)));
        assert!(call.as_mut().poll(&mut cx).is_pending());
        calls.push(call);
        clock.advance(Duration::from_secs(1));
    }
    let routes = |filter: Filter| -> Vec<String> {
        let live = board.live(&filter);
        live.iter().map(|row| row.route().to_owned()).collect()
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(
        routes(Filter::new()),
        ["/received", "/validated", "/persisted"],
        "oldest first"
    );
    assert_eq!(
        routes(Filter::new().stage(Stage::Validated)),
        ["/validated"]
    );
    assert_eq!(routes(Filter::new().min_age_ms(3_000)), ["/received"]);
    assert_eq!(routes(Filter::new().limit(1)), ["/received"]);
    assert_eq!(routes(Filter::new().min_age_ms(3_001)), none);
    assert_eq!(
        page(&board, &Filter::new().limit(0))["totals"]["in_flight"],
        3
    );

    let stuck = || -> Vec<bool> {
        let live = board.live(&Filter::new());
        live.iter().map(tower_stage::Live::is_stuck).collect()
    };
    assert_eq!(stuck(), [true, false, false]);
    clock.advance(Duration::from_secs(60));
    assert_eq!(stuck(), [true, true, false]);

    drop(calls);
    assert_eq!(
        board.recent(&Filter::new().outcome(Cause::Cancelled)).len(),
        3
    );
    assert_eq!(board.recent(&Filter::new().outcome(Cause::Done)).len(), 0);
    assert_eq!(board.recent(&Filter::new())[0].route(), "/persisted");
}

#[tokio::test]
async fn the_newest_thousand_are_kept_and_none_is_sampled_out() {
    let board = Board::new();
    let service = ServiceBuilder::new()
        .layer(layer(&board))
        .service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        });
    for n in 0..1_200 {
        service
            .clone()
            .oneshot(request(&format!("/{n}")))
            .await
            .unwrap();
    }
    let recent = board.recent(&Filter::new().limit(usize::MAX));
    let kept: Vec<_> = recent.iter().map(|row| row.route().to_owned()).collect();
    let expected: Vec<_> = (200..1_200).rev().map(|n| format!("/{n}")).collect();
    assert_eq!(kept, expected);
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    let setting = |builder: tower_stage::BoardBuilder| builder.build().unwrap_err().setting();
    let zero = Duration::ZERO;
    assert_eq!(setting(Board::builder().stuck_after(zero)), "stuck_after");
    assert_eq!(
        setting(Board::builder().stuck_after_in(Stage::Queued, zero)),
        "stuck_after_in"
    );
    assert_eq!(setting(Board::builder().max_tracked(0)), "max_tracked");
    assert_eq!(setting(Board::builder().recent(usize::MAX)), "recent");
    assert!(Board::new().watchdog(zero, |_| {}).is_err());
}

/// Requests come, mark and go on two threads while a third reads: no row is seen twice, and none is
/// left.
#[test]
fn reading_a_busy_board_is_safe() {
    let board = Board::builder().max_tracked(1_000).build().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut service =
                    ServiceBuilder::new()
                        .layer(layer(&board))
                        .service_fn(|request: Request<()>| {
                            let row = StageHandle::of(request.extensions());
                            row.mark(Stage::Validated);
                            pending::<Result<Response<Full<Bytes>>, Infallible>>()
                        });
                while !stop.load(Relaxed) {
                    let calls: Vec<_> = (0..100).map(|_| service.call(request("/x"))).collect();
                    drop(calls);
                }
            });
        }
        // A failed assertion must let the others end, else the scope waits for ever.
        let _stops = StopOnDrop(&stop);
        for _ in 0..300 {
            let live = board.live(&Filter::new().limit(usize::MAX));
            let mut ids: Vec<_> = live.iter().map(|row| row.id().to_string()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), live.len());
            assert!(live.iter().all(|row| row.route() == "/x"));
        }
    });
    assert_eq!(board.totals().in_flight, 0);
    assert_eq!(board.totals().untracked, 0);
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_watchdog_tells_and_stops() {
    let board = Board::builder()
        .stuck_after(Duration::from_millis(1))
        .build()
        .unwrap();
    let mut service = ServiceBuilder::new()
        .layer(layer(&board))
        .service_fn(|_: Request<()>| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let _call = service.call(request("/x"));
    let (tell, told) = std::sync::mpsc::channel();
    let watchdog = board
        .watchdog(Duration::from_millis(5), move |report| {
            let _ = tell.send(report.to_string());
        })
        .unwrap();
    let first = told.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(first.contains("GET /x stuck in received for"), "{first}");
    assert!(first.ends_with("(not woken)"), "{first}");
    drop(watchdog);
    // The thread has ended, and with it the sender.
    while told.recv_timeout(Duration::ZERO).is_ok() {}
    assert!(matches!(
        told.recv_timeout(Duration::from_secs(30)),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
    ));
}
