//! On real sockets over HTTP/2: the end of a stream, its reset, and bodies that may not be sent.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::put;
use futures_util::{StreamExt, stream};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tower_claim::MemoryStore;
use tower_claim::testing::{Fault, FaultStore, Operation};
use tower_lease_guard::Lease;

use crate::hosts::{leases, leases_of, serve};

#[derive(Clone)]
struct Client(SendRequest<Empty<Bytes>>);

impl Client {
    async fn of(app: Router) -> Self {
        let socket = TcpStream::connect(serve(app).await).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
                .await
                .unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn head(&mut self, method: Method, path: &str) -> Response<Incoming> {
        let uri = format!("http://x{path}");
        let request = Request::builder().method(method).uri(uri);
        let answer = self.0.send_request(request.body(Empty::new()).unwrap());
        let answer = tokio::time::timeout(Duration::from_secs(30), answer).await;
        answer.expect("no answer").unwrap()
    }

    async fn ask(&mut self, method: Method, path: &str) -> (u16, Bytes) {
        let (head, body) = self.head(method, path).await.into_parts();
        let body = tokio::time::timeout(Duration::from_secs(30), body.collect()).await;
        let body = body.expect("no end").unwrap().to_bytes();
        (head.status.as_u16(), body)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_seen_the_end_of_a_stream_gets_the_lease_at_once() {
    // So slow that who is answered sooner finds the key taken.
    let slow_to_release = FaultStore::new(MemoryStore::new());
    let slow = Fault::Delay(Duration::from_millis(20));
    slow_to_release.faults().set_for(Operation::Release, slow);
    let frames = || stream::iter(["ab", "cd"].map(Ok::<_, std::convert::Infallible>));
    let app = Router::new()
        .route("/accounts/known", put(|_: Lease| async { "abcd" }))
        .route(
            "/accounts/stream",
            put(move |_: Lease| async move { Body::from_stream(frames()) }),
        )
        .layer(leases_of(slow_to_release));
    let mut client = Client::of(app).await;
    for round in 0..10 {
        for path in ["/accounts/known", "/accounts/stream"] {
            let answer = client.ask(Method::PUT, path).await;
            assert_eq!(answer, (200, "abcd".into()), "round {round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_in_mid_body_frees_the_key_before_the_lease_ends() {
    let app = Router::new()
        .route(
            "/accounts/a",
            put(|_: Lease| async {
                let open = stream::iter(["first"]).chain(stream::pending());
                Body::from_stream(open.map(Ok::<_, std::convert::Infallible>))
            })
            .get(|_: Lease| async { "free" }),
        )
        .layer(leases());
    let mut client = Client::of(app).await;
    let mut open = client.head(Method::PUT, "/accounts/a").await;
    assert!(open.body_mut().frame().await.unwrap().unwrap().is_data());
    assert_eq!(client.ask(Method::GET, "/accounts/a").await.0, 423);
    drop(open);
    let free = async {
        while client.ask(Method::GET, "/accounts/a").await.0 == 423 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let free = tokio::time::timeout(Duration::from_secs(30), free).await;
    free.expect("the key stays taken");
    assert_eq!(client.ask(Method::GET, "/accounts/a").await.0, 200);
}
