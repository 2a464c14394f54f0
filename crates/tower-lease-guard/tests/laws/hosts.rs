//! On real sockets: axum over HTTP/1, the machine's clock, the keeper on its thread.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::response::IntoResponse;
use axum::routing::{get, put};
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_claim::http::original_uri;
use tower_claim::{ClaimStore, MemoryFenceStore, MemoryStore};
use tower_lease_guard::{FenceError, FenceLayer, Lease, LeaseGuardLayer, LeaseLost};

pub async fn serve(app: Router) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    at
}

/// One request on a connection that stays open; answers as soon as the last byte is there.
struct Client(TcpStream);

impl Client {
    async fn to(at: std::net::SocketAddr) -> Self {
        Self(TcpStream::connect(at).await.unwrap())
    }

    async fn send(&mut self, method: &str, path: &str, headers: &str) {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        self.0.write_all(request.as_bytes()).await.unwrap();
    }

    /// The status and the text, when the server closes.
    async fn read_all(&mut self) -> (u16, String) {
        self.read("\u{0}").await
    }

    /// The status, and the text up to and with `end` (after the head, when `end` is empty).
    async fn read(&mut self, end: &str) -> (u16, String) {
        let mut seen = Vec::new();
        loop {
            let mut byte = [0];
            let more = self.0.read(&mut byte);
            let Ok(n) = tokio::time::timeout(Duration::from_secs(30), more).await else {
                panic!("it ended with {:?}", String::from_utf8_lossy(&seen));
            };
            let n = n.unwrap();
            seen.extend_from_slice(&byte[..n]);
            let text = String::from_utf8_lossy(&seen);
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
            if n == 0 || body.is_some_and(|body| body.ends_with(end)) {
                let status = text
                    .get(9..12)
                    .and_then(|code| code.parse().ok())
                    .unwrap_or(0);
                return (status, text.into_owned());
            }
        }
    }
}

pub fn leases() -> LeaseGuardLayer {
    leases_of(MemoryStore::new())
}

pub fn leases_of(store: impl ClaimStore) -> LeaseGuardLayer {
    LeaseGuardLayer::new(store, |req: &http::request::Parts| {
        let path = original_uri(&req.extensions, &req.uri).path();
        path.strip_prefix("/accounts/").map(str::to_owned)
    })
}

async fn known(lease: Lease) -> Result<String, LeaseLost> {
    lease.check()?;
    Ok("the end".to_owned())
}

async fn chunked(_: Lease) -> impl IntoResponse {
    let frames = stream::iter(["one ", "two"]).map(Ok::<_, std::io::Error>);
    Body::from_stream(frames)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_read_the_response_gets_the_lease_at_once() {
    let app = Router::new()
        .route("/accounts/known", put(known).get(known))
        .route("/accounts/chunked", put(chunked))
        .route(
            "/accounts/empty",
            put(|_: Lease| async { http::StatusCode::NO_CONTENT }),
        )
        .layer(leases());
    let at = serve(app).await;
    let mut clients = [Client::to(at).await, Client::to(at).await];
    for round in 0..200 {
        // Another connection asks right behind the last byte.
        let client = &mut clients[round % 2];
        for (method, path, end) in [
            ("PUT", "/accounts/known", "the end"),
            ("PUT", "/accounts/chunked", "0\r\n\r\n"),
            ("PUT", "/accounts/empty", ""),
            ("HEAD", "/accounts/known", ""),
        ] {
            client.send(method, path, "").await;
            let (status, text) = client.read(end).await;
            assert!(
                status == 200 || status == 204,
                "round {round}: {method} {text}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_frees_the_key_before_the_lease_ends() {
    let inside = Arc::new(tokio::sync::Notify::new());
    let told = inside.clone();
    let hang = move |_: Lease| {
        let told = told.clone();
        async move {
            told.notify_one();
            std::future::pending::<()>().await;
        }
    };
    let app = Router::new()
        .route("/accounts/a", put(hang).get(known))
        .layer(leases());
    let at = serve(app).await;
    let mut first = Client::to(at).await;
    first.send("PUT", "/accounts/a", "").await;
    inside.notified().await;
    let mut second = Client::to(at).await;
    second.send("GET", "/accounts/a", "").await;
    assert_eq!(second.read("}").await.0, 423);
    drop(first);
    let free = async {
        loop {
            let mut next = Client::to(at).await;
            next.send("GET", "/accounts/a", "connection: close\r\n")
                .await;
            match next.read_all().await {
                (200, _) => return,
                (423, _) => tokio::time::sleep(Duration::from_millis(5)).await,
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), free)
        .await
        .expect("the key stays taken");
}

#[tokio::test]
async fn a_handler_without_a_lease_is_told_what_is_missing() {
    let app = Router::new()
        .route("/elsewhere", get(known))
        .route(
            "/maybe",
            get(|lease: Option<Lease>| async move { format!("{}.", lease.is_some()) }),
        )
        .layer(leases());
    let at = serve(app).await;
    let mut client = Client::to(at).await;
    client.send("GET", "/elsewhere", "").await;
    let (status, text) = client.read("}").await;
    assert!(
        status == 500
            && text.contains("application/problem+json")
            && text.contains("\"code\":\"lease-missing\"")
            && text.contains("LeaseGuardLayer"),
        "{text}"
    );
    client.send("GET", "/maybe", "").await;
    assert!(client.read("false.").await.1.ends_with("false."));
}

#[tokio::test]
async fn one_layer_on_nested_routers_leases_the_path_as_it_was_sent() {
    let layer = LeaseGuardLayer::new(MemoryStore::new(), |req: &http::request::Parts| {
        original_uri(&req.extensions, &req.uri).path().to_owned()
    });
    let inner = Router::new()
        .route(
            "/x",
            get(|lease: Lease| async move { format!("{}!", lease.fence().resource()) }),
        )
        .layer(layer);
    let app = Router::new().nest("/a", inner.clone()).nest("/b", inner);
    let at = serve(app).await;
    for path in ["/a/x", "/b/x"] {
        let mut client = Client::to(at).await;
        client.send("GET", path, "").await;
        let (status, text) = client.read("!").await;
        assert!(
            status == 200 && text.ends_with(&format!("\r\n\r\n{path}!")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn the_guard_and_the_lease_work_together_over_http() {
    let marks = MemoryFenceStore::new();
    let write = {
        let marks = marks.clone();
        move |lease: Lease| {
            let marks = marks.clone();
            async move {
                lease.fence().admit(&marks).await?;
                Ok::<_, FenceError>(lease.fence().to_string())
            }
        }
    };
    let fence = FenceLayer::new(marks, |req: &http::request::Parts| {
        req.uri.path().strip_prefix("/ledger/").map(str::to_owned)
    });
    let app = Router::new()
        .route("/accounts/a", put(write).layer(leases()))
        .route(
            "/ledger/{id}",
            put(|Path(id): Path<String>| async move { format!("wrote {id}.") }).layer(fence),
        );
    let at = serve(app).await;
    let token = async || {
        let mut client = Client::to(at).await;
        client
            .send("PUT", "/accounts/a", "connection: close\r\n")
            .await;
        let (_, text) = client.read_all().await;
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let (old, new) = (token().await, token().await);
    let mut client = Client::to(at).await;
    for (line, status, end) in [(&new, 200, "."), (&old, 412, "}"), (&new, 200, ".")] {
        client
            .send("PUT", "/ledger/a", &format!("fencing-token: {line}\r\n"))
            .await;
        assert_eq!(client.read(end).await.0, status, "{line}");
    }
}
