//! The layer among others: readiness, limits, nesting, timeouts, trailers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service as _, ServiceExt};
use tower_claim::testing::Operation;
use tower_idempotency::{IdempotencyLayer, IdempotentRun, OnBusy, RequestBody, RequestFields};

use crate::support::*;

/// Panics when it is called without having been polled ready: clones are not.
#[derive(Debug)]
struct Strict {
    ready: bool,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            calls: Arc::clone(&self.calls),
        }
    }
}

impl tower::Service<Request<RequestBody<Body>>> for Strict {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Body>>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called unready");
        self.calls.fetch_add(1, Ordering::SeqCst);
        let fails = request.headers().contains_key("x-fail");
        let status = if fails { 503 } else { 200 };
        Box::pin(async move {
            tokio::time::sleep(ms(10)).await;
            Ok(Response::builder()
                .status(status)
                .body(body_of("x"))
                .unwrap())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_called_only_after_its_own_readiness() {
    let app = App::new();
    let layer = app
        .builder()
        .on_busy(OnBusy::Wait(ms(1000)))
        .build()
        .unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let mut service = layer.layer(Strict {
        ready: false,
        calls: Arc::clone(&calls),
    });
    // Two with one key, both fail: the second waits for the first and then runs, on the path that gave
    // its readiness back.
    let asks = [
        post("/orders").key("k").header("x-fail", "1"),
        post("/orders").key("k").header("x-fail", "1"),
        post("/orders"),
        post("/orders").key("k2"),
    ];
    let mut running = Vec::new();
    for ask in asks {
        service.ready().await.unwrap();
        running.push(service.call(ask.request()));
    }
    let mut statuses = Vec::new();
    for answer in soon(join_all(running)).await {
        statuses.push(read(answer.unwrap()).await.status.as_u16());
    }
    assert_eq!(statuses, [503, 503, 200, 200]);
    assert_eq!(app.store.faults().calls().of(Operation::Watch), 1);
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn under_a_limit_a_waiting_repeat_takes_no_place() {
    let app = App::new();
    let layer = app
        .builder()
        .on_busy(OnBusy::Wait(ms(60_000)))
        .build()
        .unwrap();
    let handler = tower::service_fn(|request: Request<RequestBody<Body>>| async move {
        let fails = request.headers().contains_key("x-fail");
        tokio::time::sleep(ms(100)).await;
        let status = if fails { 503 } else { 201 };
        Ok::<_, io::Error>(
            Response::builder()
                .status(status)
                .body(body_of("x"))
                .unwrap(),
        )
    });
    let limited = ConcurrencyLimitLayer::new(2).layer(handler);
    let service = layer.layer(BoxCloneSyncService::new(limited));
    let ask = post("/orders").key("k");
    let failing = ask.clone().header("x-fail", "1");
    let asks: Vec<_> = (0..20).map(|_| ask.send(&service)).collect();
    let other = post("/orders").key("other");
    let all = async {
        let start = tokio::time::Instant::now();
        let (_, answers, other) = tokio::join!(failing.send(&service), join_all(asks), async {
            other.send(&service).await.assert_fresh(201);
            start.elapsed()
        });
        (answers, other)
    };
    // Two places, and one run: who waits for it must leave the other place to others.
    let (answers, other) = tokio::time::timeout(ms(10_000), all).await.unwrap();
    assert_eq!(answers.iter().filter(|a| !a.is_replay()).count(), 1);
    assert!(answers.iter().all(|a| a.status == 201));
    assert_eq!(other, ms(100), "it had to wait");
}

/// A connection that is kept alive keeps the service that was called for it, ready or not.
#[tokio::test(start_paused = true)]
async fn a_refused_request_gives_its_place_back_though_its_service_lives_on() {
    let app = App::new();
    let layer = app.builder().require_key().build().unwrap();
    let handler = tower::service_fn(|_: Request<RequestBody<Body>>| async move {
        Ok::<_, io::Error>(Response::new(body_of("ordered")))
    });
    let limited = ConcurrencyLimitLayer::new(1).layer(handler);
    let mut of_a_connection = layer.layer(limited);
    let mut of_another = of_a_connection.clone();
    let refused = post("/orders").request();
    let ready = ServiceExt::<Request<Body>>::ready(&mut of_a_connection).await;
    let refused = ready.unwrap().call(refused);
    assert_eq!(refused.await.unwrap().status(), 400);
    let ready = ServiceExt::<Request<Body>>::ready(&mut of_another);
    let place = tokio::time::timeout(ms(1000), ready).await;
    let ask = post("/orders").key("k").request();
    let answer = place.unwrap().unwrap().call(ask).await.unwrap();
    assert_eq!(answer.status(), 200);
    drop(of_a_connection);
}

#[tokio::test(start_paused = true)]
async fn one_layer_value_met_twice_guards_once() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let twice = layer.layer(BoxCloneSyncService::new(tower::service_fn({
        let inner = app.under(&layer);
        move |request: Request<RequestBody<Body>>| {
            let inner = inner.clone();
            async move {
                let request = request.map(as_body);
                let response = inner.oneshot(request).await?;
                Ok::<_, io::Error>(response.map(as_body))
            }
        }
    })));
    let ask = post("/orders").key("k");
    let first = ask.send(&twice).await;
    first.assert_fresh(201);
    ask.send(&twice).await.assert_replay_of(&first);
    assert_eq!((app.effects(), layer.counts().runs), (1, 1));
}

/// A batch handler sends its items through the same guard, and its extensions along; then it fails.
fn batch(layer: &IdempotencyLayer, items: Service, asks: [Ask; 2]) -> Service {
    layer.layer(BoxCloneSyncService::new(tower::service_fn(
        move |request: Request<RequestBody<Body>>| {
            let (items, asks) = (items.clone(), asks.clone());
            async move {
                for ask in asks {
                    let mut item = ask.request();
                    *item.extensions_mut() = request.extensions().clone();
                    items.clone().oneshot(item).await?;
                }
                let broke = Response::builder().status(503).body(body_of(""));
                Ok::<_, io::Error>(broke.unwrap())
            }
        },
    )))
}

#[tokio::test(start_paused = true)]
async fn a_request_within_a_run_is_guarded_under_a_key_of_its_own() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let asks = ["item-1", "item-2"].map(|key| post("/items").key(key));
    let batch = batch(&layer, app.under(&layer), asks);
    let ask = post("/batch").key("batch");
    for _ in 0..2 {
        assert_eq!(ask.send(&batch).await.status, 503);
    }
    assert_eq!(app.effects(), 2, "each item once");
}

/// Also on the same route: what is in the body tells.
#[tokio::test(start_paused = true)]
async fn it_is_so_where_the_key_is_in_the_body() {
    let json = [
        r#"{"item":"all"}"#,
        r#"{"item":"tea"}"#,
        r#"{"item":"milk"}"#,
    ];
    let form = ["item=all", "item=tea", "item=milk"];
    let by_form = "application/x-www-form-urlencoded";
    for (fields, of, bodies) in [
        (RequestFields::new().json("/item"), "application/json", json),
        (RequestFields::new().form("item"), by_form, form),
    ] {
        let app = App::new();
        let layer = app.builder().derived_from(fields).build().unwrap();
        let ask = |body| {
            let ask = post("/items").header("content-type", of).body(body);
            ask.header("x-tenant", "t")
        };
        let [all, items @ ..] = bodies.map(ask);
        let batch = batch(&layer, app.under(&layer), items);
        for _ in 0..2 {
            assert_eq!(all.send(&batch).await.status, 503);
        }
        assert_eq!(app.effects(), 2, "each item once: {of}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_layer_value_met_twice_guards_once_where_the_key_is_in_the_body() {
    let app = App::new();
    let fields = RequestFields::new().json("/item");
    let layer = app.builder().derived_from(fields).build().unwrap();
    let inner = app.under(&layer);
    let twice = layer.layer(BoxCloneSyncService::new(tower::service_fn(
        move |request: Request<RequestBody<Body>>| {
            let inner = inner.clone();
            async move {
                let response = inner.oneshot(request.map(as_body)).await?;
                Ok::<_, io::Error>(response.map(as_body))
            }
        },
    )));
    let ask = post("/orders").header("x-tenant", "t");
    let ask = ask.header("content-type", "application/json");
    let ask = ask.body(r#"{"item":"tea"}"#);
    let first = ask.send(&twice).await;
    first.assert_fresh(201);
    ask.send(&twice).await.assert_replay_of(&first);
    assert_eq!((app.effects(), layer.counts().runs), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn trailers_are_there_on_the_first_run_and_on_the_replay() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    for (key, status, kept) in [("ok", "0", true), ("gone", "14", false)] {
        let handler = tower::service_fn(move |request: Request<RequestBody<Body>>| async move {
            let read = request
                .into_body()
                .collect()
                .await
                .map_err(io::Error::other)?;
            let sum = read.trailers().map(|t| t["x-sum"].clone());
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status.parse().unwrap());
            trailers.extend(sum.map(|sum| (http::HeaderName::from_static("x-sum"), sum)));
            let frames = [
                Ok(Frame::data(read.to_bytes())),
                Ok(Frame::trailers(trailers)),
            ];
            let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
            let response = Response::builder().header("content-type", "application/grpc");
            Ok::<_, io::Error>(response.body(body).unwrap())
        });
        let service = layer.layer(BoxCloneSyncService::new(handler));
        let ask = post("/lab.Lab/Order")
            .key(key)
            .header("content-type", "application/grpc");
        let request = || {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", "7".parse().unwrap());
            let frames = [
                Ok(Frame::data(Bytes::from_static(b"hello"))),
                Ok(Frame::trailers(trailers)),
            ];
            ask.with(StreamBody::new(stream::iter(frames)).boxed_unsync())
        };
        let first = send(&service, request()).await;
        assert_eq!(first.text(), "hello");
        let trailers = first.trailers.clone().unwrap();
        assert_eq!(
            (&trailers["grpc-status"], &trailers["x-sum"]),
            (&status.parse().unwrap(), &"7".parse().unwrap())
        );
        let again = send(&service, request()).await;
        assert_eq!(again.is_replay(), kept, "{key}");
        assert_eq!((again.trailers, again.body), (first.trailers, first.body));
    }
}

#[test]
fn the_layer_and_its_parts_go_where_hosts_need_them() {
    fn shared<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    shared::<IdempotencyLayer>();
    shared::<IdempotentRun>();
    fn sent<T: Send + 'static>() {}
    sent::<Service>();
    sent::<tower_idempotency::ResponseBody<Body>>();
    fn defaulted<T: Default + std::fmt::Debug>() {}
    defaulted::<tower_idempotency::ResponseBody<Body>>();
    defaulted::<RequestBody<Body>>();
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_answers_its_caller_and_the_handler_runs_on() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let service = app.under(&layer);
    let impatient = TimeoutLayer::new(ms(300)).layer(service.clone());
    let ask = post("/orders").key("k");
    let slow = ask.clone().flags("delay=1000").request();
    let error = impatient.oneshot(slow).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>());
    assert_eq!((app.effects(), layer.in_flight()), (1, 1));
    ask.send(&service).await.assert_refused(409, "in-progress");
    tokio::time::sleep(ms(701)).await;
    assert!(ask.send(&service).await.is_replay());
    assert_eq!((app.effects(), layer.in_flight()), (1, 0));
}

/// What the documentation advises against handlers that hang.
#[tokio::test(start_paused = true)]
async fn a_timeout_inside_frees_the_key_and_the_place() {
    let app = App::new();
    let layer = app.builder().max_in_flight(1).build().unwrap();
    let hanging = tower::service_fn(|request: Request<RequestBody<Body>>| async move {
        if request.headers().contains_key("x-hang") {
            std::future::pending::<()>().await;
        }
        Ok::<_, io::Error>(Response::new(body_of("done")))
    });
    let timed = TimeoutLayer::new(ms(300)).layer(hanging);
    let timed = timed.map_err(io::Error::other);
    let service = layer.layer(BoxCloneSyncService::new(timed));
    let ask = post("/orders").key("k");
    let hangs = ask.clone().header("x-hang", "1").request();
    assert!(service.clone().oneshot(hangs).await.is_err());
    assert_eq!(layer.in_flight(), 0);
    ask.send(&service).await.assert_fresh(200);
}
