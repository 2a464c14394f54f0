//! The layer among others: readiness, limits, nesting, trailers, real sockets.

use std::convert::Infallible;
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
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service as _, ServiceBuilder, ServiceExt};
use tower_claim::testing::Operation;
use tower_idempotency::{IdempotencyLayer, IdempotentRun, OnBusy, RequestBody};

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
    for answer in join_all(running).await {
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

#[tokio::test(start_paused = true)]
async fn one_layer_value_met_twice_guards_once() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let twice = layer.layer(BoxCloneSyncService::new(tower::service_fn({
        let inner = app.under(&layer);
        move |request: Request<RequestBody<Body>>| {
            let inner = inner.clone();
            async move {
                let request = request.map(BodyExt::boxed_unsync);
                let response = inner.oneshot(request).await?;
                Ok::<_, io::Error>(response.map(BodyExt::boxed_unsync))
            }
        }
    })));
    let ask = post("/orders").key("k");
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
            let read = request.into_body().collect().await?;
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

mod over_axum {
    use axum::Router;
    use axum::extract::State;
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[derive(Clone, Default)]
    struct Effects(Arc<AtomicUsize>);

    async fn order(State(effects): State<Effects>, body: String) -> (http::StatusCode, String) {
        let n = effects.0.fetch_add(1, Ordering::SeqCst) + 1;
        if let Ok(delay) = body.parse() {
            tokio::time::sleep(ms(delay)).await;
        }
        (http::StatusCode::CREATED, format!("order {n}"))
    }

    async fn serve(router: Router) -> std::net::SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        at
    }

    fn raw(path: &str, key: &str, body: &str) -> String {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nidempotency-key: {key}\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    async fn ask(at: std::net::SocketAddr, path: &str, key: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(at).await.unwrap();
        socket
            .write_all(raw(path, key, body).as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn until(what: &str, mut holds: impl FnMut() -> bool) {
        for _ in 0..1000 {
            if holds() {
                return;
            }
            tokio::time::sleep(ms(10)).await;
        }
        panic!("not within 10 s: {what}");
    }

    #[tokio::test]
    async fn a_caller_that_closes_its_socket_is_replayed_the_answer_later() {
        let effects = Effects::default();
        let layer = IdempotencyLayer::new(tower_claim::MemoryStore::new());
        let router = Router::new()
            .route("/orders", post(order).layer(layer.clone()))
            .with_state(effects.clone());
        let at = serve(router).await;

        let mut socket = TcpStream::connect(at).await.unwrap();
        socket
            .write_all(raw("/orders", "k", "300").as_bytes())
            .await
            .unwrap();
        until("the handler runs", || effects.0.load(Ordering::SeqCst) == 1).await;
        drop(socket);
        until("the handler is done", || layer.in_flight() == 0).await;

        let replay = ask(at, "/orders", "k", "300").await;
        assert!(replay.starts_with("HTTP/1.1 201"), "{replay}");
        assert!(replay.contains("idempotent-replayed: true"), "{replay}");
        assert!(replay.ends_with("order 1"), "{replay}");
        assert_eq!(effects.0.load(Ordering::SeqCst), 1);

        // Cut off during the upload: no effect, and the key is free at once.
        let mut socket = TcpStream::connect(at).await.unwrap();
        let whole = raw("/orders", "k2", "0123456789");
        socket
            .write_all(&whole.as_bytes()[..whole.len() - 5])
            .await
            .unwrap();
        drop(socket);
        let fresh = ask(at, "/orders", "k2", "0").await;
        assert!(fresh.ends_with("order 2"), "{fresh}");
    }

    #[tokio::test]
    async fn another_layer_that_wants_axums_body_goes_inside_with_an_adaptor() {
        async fn pass(
            request: axum::extract::Request,
            next: axum::middleware::Next,
        ) -> axum::response::Response {
            next.run(request).await
        }
        let layer = IdempotencyLayer::new(tower_claim::MemoryStore::new());
        let stack = ServiceBuilder::new()
            .layer(layer)
            .layer(tower::util::MapRequestLayer::new(
                |request: Request<RequestBody<axum::body::Body>>| {
                    request.map(axum::body::Body::new)
                },
            ))
            .layer(axum::middleware::from_fn(pass));
        let router: Router = Router::new()
            .route("/orders", post(order))
            .layer(stack)
            .with_state(Effects::default());
        let request = Request::post("/orders").header("idempotency-key", "k");
        let request = request.body(axum::body::Body::empty()).unwrap();
        let response: Result<_, Infallible> = router.oneshot(request).await;
        assert_eq!(response.unwrap().status(), 201);
    }

    #[cfg(feature = "axum")]
    #[tokio::test]
    async fn nested_routers_with_one_layer_value_keep_their_paths_apart() {
        let effects = Effects::default();
        let layer = IdempotencyLayer::new(tower_claim::MemoryStore::new());
        let inner = || Router::new().route("/orders", post(order).layer(layer.clone()));
        let router = Router::new()
            .nest("/v1", inner())
            .nest("/v2", inner())
            .with_state(effects.clone());
        let at = serve(router).await;
        let first = ask(at, "/v1/orders", "k", "x").await;
        assert!(first.ends_with("order 1"), "{first}");
        let other = ask(at, "/v2/orders", "k", "x").await;
        assert!(other.starts_with("HTTP/1.1 422"), "{other}");
        assert!(other.contains("key-reused"), "{other}");
        let same = ask(at, "/v1/orders", "k", "x").await;
        assert!(same.contains("idempotent-replayed: true"), "{same}");
    }

    #[cfg(feature = "axum")]
    #[tokio::test]
    async fn the_run_is_an_extractor() {
        async fn careful(run: IdempotentRun) -> Result<String, tower_idempotency::PointRefused> {
            run.point_of_no_return().await?;
            Ok(format!("attempt {}", run.attempt()))
        }
        async fn either(run: Option<IdempotentRun>) -> String {
            run.is_some().to_string()
        }
        let layer = IdempotencyLayer::new(tower_claim::MemoryStore::new());
        let router: Router = Router::new()
            .route("/careful", post(careful))
            .route("/either", post(either))
            .layer(layer);
        let send = |path: &str, key: Option<&str>| {
            let mut request = Request::post(path);
            if let Some(key) = key {
                request = request.header("idempotency-key", key);
            }
            let request = request.body(axum::body::Body::empty()).unwrap();
            let response = router.clone().oneshot(request);
            async move {
                let response = response.await.unwrap();
                let status = response.status().as_u16();
                let body = response.into_body().collect().await.unwrap().to_bytes();
                (status, String::from_utf8(body.to_vec()).unwrap())
            }
        };
        assert_eq!(send("/careful", Some("a")).await, (200, "attempt 1".into()));
        let (status, body) = send("/careful", None).await;
        assert!(status == 400 && body.contains("key-missing"), "{body}");
        assert_eq!(send("/either", Some("b")).await, (200, "true".into()));
        assert_eq!(send("/either", None).await, (200, "false".into()));
    }
}
