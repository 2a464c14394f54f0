//! The layer under axum: over real sockets, in nested routers, with the extractor.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_LENGTH;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceBuilder;
use tower_stage::{Board, Filter, Finished, Stage, StageHandle, StageLayer, mark};

async fn serve(app: Router) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn send(address: std::net::SocketAddr, request: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

/// Sends one request and reads the answer to the end of the connection.
async fn fetch(address: std::net::SocketAddr, method: &str, path: &str) -> String {
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let mut socket = send(address, &request).await;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Waits for a condition, with a deadline.
async fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn newest(board: &Board) -> Finished {
    until(|| board.recent(&Filter::new()).into_iter().next()).await
}

fn announced(
    chunks: impl futures_util::Stream<Item = Bytes> + Send + 'static,
    all: u64,
) -> Response {
    let body = Body::from_stream(chunks.map(Ok::<_, std::io::Error>));
    ([(CONTENT_LENGTH, all.to_string())], body).into_response()
}

#[tokio::test]
async fn an_announced_stream_read_to_its_end_is_done() {
    let board = Board::new();
    let chunks = || stream::iter(vec![Bytes::from_static(b"four"); 3]);
    let app = Router::new()
        .route("/", get(move || async move { announced(chunks(), 12) }))
        .layer(StageLayer::new(board.clone()));
    let address = serve(app).await;
    assert!(fetch(address, "GET", "/").await.ends_with("fourfourfour"));
    let row = newest(&board).await;
    assert_eq!(row.outcome().to_string(), "done@streaming");
    assert_eq!(row.bytes(), 12);
    assert_eq!(board.totals().in_flight, 0);
}

#[tokio::test]
async fn a_client_that_leaves_half_way_is_gone() {
    let board = Board::new();
    let chunks = || stream::iter([Bytes::from_static(b"four")]).chain(stream::pending());
    let app = Router::new()
        .route("/", get(move || async move { announced(chunks(), 12) }))
        .layer(StageLayer::new(board.clone()));
    let address = serve(app).await;
    let mut socket = send(address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut answer = Vec::new();
    while !answer.ends_with(b"four") {
        assert!(socket.read_buf(&mut answer).await.unwrap() > 0);
    }
    drop(socket);
    let row = newest(&board).await;
    assert_eq!(row.outcome().to_string(), "client_gone@streaming");
    assert_eq!((row.bytes(), row.status().unwrap().as_u16()), (4, 200));
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_is_cancelled() {
    let board = Board::new();
    let app = Router::new()
        .route("/", get(std::future::pending::<()>))
        .layer(StageLayer::new(board.clone()));
    let address = serve(app).await;
    let socket = send(address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    until(|| (board.totals().in_flight == 1).then_some(())).await;
    drop(socket);
    let row = newest(&board).await;
    assert_eq!(row.outcome().to_string(), "cancelled@received");
    assert_eq!(row.status(), None);
}

#[tokio::test]
async fn head_and_a_handlers_panic_end_as_they_should() {
    let board = Board::new();
    let boom = || async {
        if !mark_and_tell() {
            return "unreachable";
        }
        panic!("on command")
    };
    let app = Router::new()
        .route("/", get(async || "hello"))
        .route("/boom", get(boom))
        .layer(StageLayer::new(board.clone()));
    let address = serve(app).await;

    assert!(
        fetch(address, "HEAD", "/")
            .await
            .contains("content-length: 5")
    );
    let head = newest(&board).await;
    assert_eq!(head.outcome().to_string(), "done@received");
    assert_eq!((head.method(), head.bytes()), ("HEAD", 0));

    assert_eq!(fetch(address, "GET", "/boom").await, "");
    let row =
        until(|| (board.recent(&Filter::new()).len() == 2).then(|| board.recent(&Filter::new())));
    assert_eq!(row.await[0].outcome().to_string(), "panicked@validated");
}

fn mark_and_tell() -> bool {
    mark(Stage::Validated);
    StageHandle::current().is_live()
}

async fn handler(stage: StageHandle) -> String {
    stage.mark(Stage::Persisted);
    stage.id().unwrap_or_default()
}

#[tokio::test]
async fn the_route_is_the_template_wherever_the_layer_stands() {
    let inner = |layer: Option<StageLayer>| {
        let items = get(handler);
        let router = Router::new().route(
            "/items/{id}",
            match layer.clone() {
                Some(layer) => items.layer(layer),
                None => items,
            },
        );
        Router::new().nest("/a", router.clone()).nest("/b", router)
    };
    let board = Board::new();
    let layer = StageLayer::new(board.clone());
    for app in [
        inner(Some(layer.clone())),
        inner(None).layer(layer.clone()),
        inner(None).route_layer(layer.clone()),
        // Both: still one row.
        inner(Some(layer.clone())).layer(layer.clone()),
    ] {
        let address = serve(app).await;
        for path in ["/a/items/7", "/b/items/7"] {
            let before = board.recent(&Filter::new()).len();
            let answer = fetch(address, "GET", path).await;
            let rows = until(|| {
                let rows = board.recent(&Filter::new());
                (rows.len() > before).then_some(rows)
            })
            .await;
            assert_eq!(rows.len(), before + 1, "one request, one row");
            let row = &rows[0];
            let template = path.replace('7', "{id}");
            assert_eq!((row.method(), row.route()), ("GET", template.as_str()));
            assert!(answer.ends_with(&row.id().to_string()));
            assert!(row.stages().get(Stage::Persisted).is_some());
        }
    }
}

#[tokio::test]
async fn without_a_template_the_route_is_unmatched() {
    let board = Board::new();
    let app = Router::new()
        .route("/", get(handler))
        .fallback(async || "nothing here")
        .layer(StageLayer::new(board.clone()));
    let address = serve(app).await;
    fetch(address, "GET", "/scan/../etc").await;
    assert_eq!(newest(&board).await.route(), "unmatched");
}

#[tokio::test]
async fn without_a_layer_a_handle_is_inert() {
    let address = serve(Router::new().route("/", get(handler))).await;
    let answer = fetch(address, "GET", "/").await;
    assert!(answer.starts_with("HTTP/1.1 200"));
    assert!(answer.ends_with("\r\n\r\n"), "it has no id: {answer}");
}

/// One limit of one, three callers of 100 ms each, in one `ServiceBuilder` or in two `.layer` calls.
#[tokio::test]
async fn the_wait_for_a_permit_is_seen_in_both_forms_of_a_stack() {
    let slow = || async {
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for split in [false, true] {
        let board = Board::new();
        let stage = StageLayer::new(board.clone()).queue_aware();
        let limit = tower::limit::GlobalConcurrencyLimitLayer::new(1);
        let app = Router::new().route("/", get(slow));
        let app = if split {
            app.layer(limit).layer(stage)
        } else {
            app.layer(ServiceBuilder::new().layer(stage).layer(limit))
        };
        let address = serve(app).await;
        let all = (0..3).map(|_| fetch(address, "GET", "/"));
        futures_util::future::join_all(all).await;
        let mut totals: Vec<_> = board
            .recent(&Filter::new())
            .iter()
            .map(|row| row.total().as_millis() / 100)
            .collect();
        totals.sort_unstable();
        assert!(
            totals[0] >= 1 && totals[1] >= 2 && totals[2] >= 3,
            "split: {split}, {totals:?}"
        );
    }
}
