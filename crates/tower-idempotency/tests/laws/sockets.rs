//! Over real sockets: axum on HTTP/1 and HTTP/2.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
#[cfg(feature = "axum")]
use http_body_util::BodyExt;
use http_body_util::StreamBody;
use tower::{ServiceBuilder, ServiceExt};
#[cfg(feature = "axum")]
use tower_idempotency::IdempotentRun;
use tower_idempotency::{IdempotencyLayer, RequestBody};

use crate::support::ms;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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
    send(at, &raw(path, key, body)).await
}

async fn send(at: std::net::SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(at).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let reading = socket.read_to_string(&mut answer);
    let read = tokio::time::timeout(ms(30_000), reading).await;
    assert!(read.is_ok_and(|read| read.is_ok()), "it hangs: {answer}");
    answer
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(ms(10)).await;
    }
    panic!("not within 30 s: {what}");
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
            |request: Request<RequestBody<axum::body::Body>>| request.map(axum::body::Body::new),
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

#[tokio::test]
async fn an_http2_stream_that_is_reset_is_replayed_its_answer_later() {
    let effects = Effects::default();
    let layer = IdempotencyLayer::new(tower_claim::MemoryStore::new());
    let router = Router::new()
        .route("/orders", post(order).layer(layer.clone()))
        .with_state(effects.clone());
    let at = serve(router).await;

    let socket = TcpStream::connect(at).await.unwrap();
    let (client, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = |key: &str| {
        let request = Request::post("http://x/orders").header("idempotency-key", key);
        request.body(()).unwrap()
    };

    let (answer, mut upload) = client.send_request(request("k"), false).unwrap();
    upload.send_data(Bytes::from_static(b"3000"), true).unwrap();
    until("the handler runs", || effects.0.load(Ordering::SeqCst) == 1).await;
    upload.send_reset(h2::Reason::CANCEL);
    assert!(answer.await.unwrap_err().is_reset());
    assert_eq!(layer.in_flight(), 1, "it runs on");
    until("the handler is done", || layer.in_flight() == 0).await;
    let (answer, mut upload) = client.send_request(request("k"), false).unwrap();
    upload.send_data(Bytes::from_static(b"3000"), true).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["idempotent-replayed"], "true");

    // Reset during the upload: no effect, and the key is free at once.
    let (reset, mut upload) = client.send_request(request("k2"), false).unwrap();
    upload
        .send_data(Bytes::from_static(b"half"), false)
        .unwrap();
    upload.send_reset(h2::Reason::CANCEL);
    assert!(reset.await.is_err());
    let (answer, mut upload) = client.send_request(request("k2"), false).unwrap();
    upload.send_data(Bytes::from_static(b"0"), true).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 201);
    assert!(!answer.headers().contains_key("idempotent-replayed"));
    assert_eq!(effects.0.load(Ordering::SeqCst), 2);
}

/// Of a large one the layer reads no more than it must, and knows it by what its handler has read.
#[tokio::test]
async fn a_large_upload_is_one_payload_however_it_comes() {
    let effects = Effects::default();
    let layer = IdempotencyLayer::builder(tower_claim::MemoryStore::new())
        .max_request_body(4)
        .stream_uploads(1 << 20)
        .build()
        .unwrap();
    let router = Router::new()
        .route("/orders", post(order).layer(layer.clone()))
        .with_state(effects.clone());
    let at = serve(router).await;
    let chunked = |body: &str| {
        let (head, tail) = body.split_at(6);
        format!(
            "POST /orders HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\nconnection: close\r\n\
             transfer-encoding: chunked\r\n\r\n{:x}\r\n{head}\r\n{:x}\r\n{tail}\r\n0\r\n\r\n",
            head.len(),
            tail.len()
        )
    };
    let over_http2 = async |body: &'static str| {
        let socket = TcpStream::connect(at).await.unwrap();
        let (client, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let request = Request::post("http://x/orders").header("idempotency-key", "k");
        let request = request.body(()).unwrap();
        let (answer, mut upload) = client.send_request(request, false).unwrap();
        upload
            .send_data(Bytes::from_static(body.as_bytes()), true)
            .unwrap();
        let answer = answer.await.unwrap();
        let replayed = answer.headers().contains_key("idempotent-replayed");
        (answer.status().as_u16(), replayed)
    };
    let (one, other) = ("0000000000", "0000000001");
    let first = ask(at, "/orders", "k", one).await;
    assert!(first.starts_with("HTTP/1.1 201"), "{first}");
    for again in [
        ask(at, "/orders", "k", one).await,
        send(at, &chunked(one)).await,
    ] {
        assert!(again.starts_with("HTTP/1.1 201"), "{again}");
        assert!(again.contains("idempotent-replayed: true"), "{again}");
    }
    assert_eq!(over_http2(one).await, (201, true));
    for reuse in [
        ask(at, "/orders", "k", other).await,
        send(at, &chunked(other)).await,
    ] {
        assert!(reuse.starts_with("HTTP/1.1 422"), "{reuse}");
    }
    assert_eq!(over_http2(other).await, (422, false));
    assert_eq!(effects.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_layer_inside_that_rewrites_path_key_and_body_changes_nothing() {
    let effects = Effects::default();
    let layer = IdempotencyLayer::builder(tower_claim::MemoryStore::new()).require_key();
    let layer = layer.build().unwrap();
    let rewrite =
        tower::util::MapRequestLayer::new(|mut request: Request<RequestBody<axum::body::Body>>| {
            request.headers_mut().remove("idempotency-key");
            *request.uri_mut() = "/elsewhere?x=1".parse().unwrap();
            request.map(|_| axum::body::Body::from("0"))
        });
    // The same layer value once more, inside: the key is gone there.
    let stack = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(rewrite)
        .layer(layer.clone())
        .map_request(|request: Request<RequestBody<axum::body::Body>>| {
            request.map(axum::body::Body::new)
        });
    let router = Router::new()
        .route("/orders", post(order))
        .layer(stack)
        .with_state(effects.clone());
    let at = serve(router).await;
    let first = ask(at, "/orders", "k", "one").await;
    assert!(first.ends_with("order 1"), "{first}");
    let again = ask(at, "/orders", "k", "one").await;
    assert!(again.contains("idempotent-replayed: true"), "{again}");
    let other = ask(at, "/orders", "k", "two").await;
    assert!(other.contains("key-reused"), "{other}");
    assert_eq!(
        (effects.0.load(Ordering::SeqCst), layer.counts().runs),
        (1, 1)
    );
}

#[tokio::test]
async fn trailers_survive_on_http1_also_in_a_replay() {
    async fn sum(body: String) -> Response<axum::body::Body> {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "7".parse().unwrap());
        let frames = [
            Ok::<_, Infallible>(Frame::data(Bytes::from(body))),
            Ok(Frame::trailers(trailers)),
        ];
        let body = axum::body::Body::new(StreamBody::new(stream::iter(frames)));
        let response = Response::builder().header("trailer", "x-sum");
        response.body(body).unwrap()
    }
    let layer = IdempotencyLayer::new(tower_claim::MemoryStore::new());
    let at = serve(Router::new().route("/sum", post(sum).layer(layer))).await;
    let request = raw("/sum", "k", "abc").replacen("\r\n", "\r\nte: trailers\r\n", 1);
    for replayed in [false, true] {
        let answer = send(at, &request).await;
        assert_eq!(answer.contains("idempotent-replayed"), replayed);
        assert!(answer.contains("\r\nx-sum: 7\r\n"), "{replayed}: {answer}");
    }
}
