//! Compression above and below the layer, over real sockets (HTTP/1 and HTTP/2).

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_claim::MemoryStore;
use tower_http::compression::CompressionLayer;
use tower_http::decompression::DecompressionLayer;
use tower_idempotency::IdempotencyLayer;

use axum::Router;
use axum::routing::post;

/// Long enough to be compressed.
fn text(n: usize) -> String {
    format!("order {n} ").repeat(200)
}

fn router(above: bool, once: &IdempotencyLayer) -> Router {
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let order = move || {
        let n = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        async move { ([("x-n", n.to_string())], text(n)) }
    };
    if above {
        let layers = ServiceBuilder::new()
            .layer(CompressionLayer::new().gzip(true))
            .layer(once.clone());
        Router::new().route("/orders", post(order).layer(layers))
    } else {
        let layers = ServiceBuilder::new()
            .layer(once.clone())
            .layer(CompressionLayer::new().gzip(true));
        Router::new().route("/orders", post(order).layer(layers))
    }
}

async fn serve(router: Router) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    at
}

async fn ask(at: std::net::SocketAddr, http2: bool, key: &str, gzip: bool) -> Response<Bytes> {
    let client = Client::builder(TokioExecutor::new())
        .http2_only(http2)
        .build_http::<Full<Bytes>>();
    let mut request = Request::post(format!("http://{at}/orders")).header("idempotency-key", key);
    if gzip {
        request = request.header("accept-encoding", "gzip");
    }
    let request = request.body(Full::new(Bytes::from_static(b"{}"))).unwrap();
    let response = client.request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Response::from_parts(parts, body)
}

async fn unpacked(response: Response<Bytes>) -> String {
    let given = tower::service_fn(move |_: Request<()>| {
        let response = response.clone().map(Full::new);
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let unpacked = DecompressionLayer::new().layer(given);
    let response = unpacked.oneshot(Request::new(())).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn compressed_above_the_record_is_plain_and_each_caller_gets_what_it_accepts() {
    let once = IdempotencyLayer::new(MemoryStore::new());
    let at = serve(router(true, &once)).await;
    for (http2, key) in [(false, "one"), (true, "two")] {
        let first = ask(at, http2, key, true).await;
        assert_eq!(first.headers()["content-encoding"], "gzip");
        assert!(first.body().len() < 500, "it is compressed");
        let n = first.headers()["x-n"].to_str().unwrap().parse().unwrap();
        assert_eq!(unpacked(first).await, text(n));
        let replay = ask(at, http2, key, true).await;
        assert_eq!(replay.headers()["idempotent-replayed"], "true");
        assert_eq!(replay.headers()["content-encoding"], "gzip");
        assert_eq!(unpacked(replay).await, text(n));
        let plain = ask(at, http2, key, false).await;
        assert_eq!(plain.headers()["idempotent-replayed"], "true");
        assert!(!plain.headers().contains_key("content-encoding"));
        assert_eq!(plain.body(), text(n).as_bytes());
    }
    assert_eq!(once.counts().runs, 2);
}

#[tokio::test]
async fn compressed_below_the_record_is_what_was_sent_with_its_encoding() {
    let once = IdempotencyLayer::new(MemoryStore::new());
    let at = serve(router(false, &once)).await;
    for (http2, key) in [(false, "one"), (true, "two")] {
        let first = ask(at, http2, key, true).await;
        let replay = ask(at, http2, key, true).await;
        assert_eq!(replay.headers()["idempotent-replayed"], "true");
        assert_eq!(replay.headers()["content-encoding"], "gzip");
        assert_eq!(replay.headers()["vary"], first.headers()["vary"]);
        assert_eq!(replay.body(), first.body(), "byte for byte");
        let n = first.headers()["x-n"].to_str().unwrap().parse().unwrap();
        assert_eq!(unpacked(replay).await, text(n));
    }
    assert_eq!(once.counts().runs, 2);
}
