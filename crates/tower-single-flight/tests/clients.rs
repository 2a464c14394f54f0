//! Real clients over HTTP/1 and HTTP/2, nested routers, and the herd in real time.
#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{OriginalUri, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use common::{real, threaded};
use futures_util::future::join_all;
use futures_util::stream;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tower_single_flight::SingleFlightLayer;

const MS: Duration = Duration::from_millis(1);

/// The calls, and a gate that each call waits at.
#[derive(Clone, Default)]
struct Upstream {
    calls: Arc<AtomicUsize>,
    go: Arc<Notify>,
}

impl Upstream {
    fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    address
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(MS).await;
    }
}

fn request(address: SocketAddr, path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("http://{address}{path}");
    let request = Request::get(uri).header("host", address.to_string());
    request.header("te", "trailers").body(Empty::new()).unwrap()
}

async fn h1(address: SocketAddr) -> http1::SendRequest<Empty<Bytes>> {
    let socket = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (client, connection) = http1::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn h2(address: SocketAddr) -> http2::SendRequest<Empty<Bytes>> {
    let socket = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (client, connection) = http2::handshake(TokioExecutor::new(), socket)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

async fn text(response: hyper::Response<hyper::body::Incoming>) -> (StatusCode, String) {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Three frames of unknown length, with trailers.
async fn three_frames(State(upstream): State<Upstream>) -> Response {
    upstream.calls.fetch_add(1, SeqCst);
    upstream.go.notified().await;
    let frames = ["one ", "two ", "three"].map(|f| Ok::<_, std::io::Error>(Bytes::from(f)));
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "3".parse().unwrap())]);
    let body = Body::from_stream(stream::iter(frames));
    let trailers = async move { Some(Ok(trailers)) };
    (
        [("trailer", "x-sum")],
        Body::new(body.with_trailers(trailers)),
    )
        .into_response()
}

fn app(upstream: &Upstream, layer: &SingleFlightLayer) -> Router {
    Router::new()
        .route("/x", get(three_frames))
        .layer(layer.clone())
        .with_state(upstream.clone())
}

#[test]
fn a_reset_stream_spoils_no_other_on_its_connection() {
    real(async {
        let (upstream, layer) = (Upstream::default(), SingleFlightLayer::new());
        let address = serve(app(&upstream, &layer)).await;
        let mut client = h2(address).await;
        let leader = tokio::spawn(client.send_request(request(address, "/x")));
        until("the leader calls", || upstream.calls() == 1).await;
        let others = [(); 2].map(|()| tokio::spawn(client.send_request(request(address, "/x"))));
        until("the others follow", || layer.followers() == 2).await;
        leader.abort();
        let _ = leader.await;
        // The reset has been seen when the leader's seat is the only one that is empty.
        upstream.go.notify_one();
        for other in others {
            let response = other.await.unwrap().unwrap();
            let collected = response.into_body().collect().await.unwrap();
            assert_eq!(collected.trailers().unwrap()["x-sum"], "3");
            assert_eq!(collected.to_bytes(), "one two three");
        }
        assert_eq!(upstream.calls(), 1);
        until("all is over", || layer.flights() == 0).await;
    });
}

#[test]
fn a_closed_connection_spoils_no_other() {
    real(async {
        let (upstream, layer) = (Upstream::default(), SingleFlightLayer::new());
        let address = serve(app(&upstream, &layer)).await;
        let mut first = h1(address).await;
        let leader = tokio::spawn(async move { first.send_request(request(address, "/x")).await });
        until("the leader calls", || upstream.calls() == 1).await;
        let others = [(); 3].map(|()| {
            tokio::spawn(async move {
                let mut client = h1(address).await;
                text(client.send_request(request(address, "/x")).await.unwrap()).await
            })
        });
        until("the others follow", || layer.followers() == 3).await;
        leader.abort();
        let _ = leader.await;
        upstream.go.notify_one();
        for other in others {
            assert_eq!(
                other.await.unwrap(),
                (StatusCode::OK, "one two three".to_owned())
            );
        }
        assert_eq!(upstream.calls(), 1);
        until("all is over", || layer.flights() == 0).await;
    });
}

#[test]
fn trailers_reach_every_http1_client() {
    real(async {
        let (upstream, layer) = (Upstream::default(), SingleFlightLayer::new());
        let address = serve(app(&upstream, &layer)).await;
        let callers = [(); 3].map(|()| {
            tokio::spawn(async move {
                let mut client = h1(address).await;
                let response = client.send_request(request(address, "/x")).await.unwrap();
                response.into_body().collect().await.unwrap()
            })
        });
        until("two follow", || layer.followers() == 2).await;
        upstream.go.notify_one();
        for caller in callers {
            let collected = caller.await.unwrap();
            assert_eq!(collected.trailers().unwrap()["x-sum"], "3");
            assert_eq!(collected.to_bytes(), "one two three");
        }
        assert_eq!(upstream.calls(), 1);
    });
}

/// The inner body ends early although its length was promised: no client may take it for whole.
#[test]
fn a_short_body_is_an_error_for_every_client() {
    real(async {
        async fn short(State(upstream): State<Upstream>) -> Response {
            upstream.calls.fetch_add(1, SeqCst);
            upstream.go.notified().await;
            let frames = [Ok::<_, std::io::Error>(Bytes::from("half"))];
            (
                [("content-length", "8")],
                Body::from_stream(stream::iter(frames)),
            )
                .into_response()
        }
        let (upstream, layer) = (Upstream::default(), SingleFlightLayer::new());
        let app = Router::new()
            .route("/x", get(short))
            .layer(layer.clone())
            .with_state(upstream.clone());
        let address = serve(app).await;
        let callers = [(); 3].map(|()| {
            tokio::spawn(async move {
                let mut client = h1(address).await;
                let response = client.send_request(request(address, "/x")).await.unwrap();
                let status = response.status();
                (status, response.into_body().collect().await.is_ok())
            })
        });
        until("two follow", || layer.followers() == 2).await;
        upstream.go.notify_one();
        let mut ends = Vec::new();
        for caller in callers {
            ends.push(caller.await.unwrap());
        }
        ends.sort();
        let (leader, refused) = ((StatusCode::OK, false), (StatusCode::BAD_GATEWAY, true));
        assert_eq!(ends, [leader, refused, refused]);
    });
}

/// One layer value on inner routers: they see a stripped path and would share `/x`.
#[test]
fn nested_routers_never_share_by_their_stripped_path() {
    real(async {
        async fn path(State(upstream): State<Upstream>, OriginalUri(uri): OriginalUri) -> String {
            upstream.calls.fetch_add(1, SeqCst);
            upstream.go.notified().await;
            uri.path().to_owned()
        }
        let (upstream, layer) = (Upstream::default(), SingleFlightLayer::new());
        let inner = || Router::new().route("/x", get(path)).layer(layer.clone());
        let app = Router::new()
            .nest("/a", inner())
            .nest("/b", inner())
            .with_state(upstream.clone());
        let address = serve(app).await;
        let callers = ["/a/x", "/b/x", "/a/x", "/b/x"].map(|path| {
            tokio::spawn(async move {
                let mut client = h1(address).await;
                let answer = client.send_request(request(address, path)).await.unwrap();
                (path, text(answer).await.1)
            })
        });
        until("two lead and two follow", || {
            upstream.calls() == 2 && layer.followers() == 2
        })
        .await;
        upstream.go.notify_one();
        upstream.go.notify_one();
        for caller in callers {
            let (asked, answered) = caller.await.unwrap();
            assert_eq!(asked, answered);
        }
        assert_eq!(upstream.calls(), 2);
    });
}

/// 100 callers: one call, whatever happens. The time is printed; only the calls are judged, for a busy machine
/// is slow.
#[test]
fn the_herd_is_one_call_whatever_happens() {
    threaded(async {
        use tower::{Layer, ServiceExt, service_fn};

        for case in ["success", "failure", "leader gone after a join", "panic"] {
            let calls = Arc::new(AtomicUsize::new(0));
            let (count, together) = (Arc::clone(&calls), Arc::new(Notify::new()));
            let gate = Arc::clone(&together);
            let layer = SingleFlightLayer::new();
            let service = layer.layer(service_fn(move |_: Request<Body>| {
                count.fetch_add(1, SeqCst);
                let gate = Arc::clone(&gate);
                async move {
                    gate.notified().await;
                    match case {
                        "failure" => Err("down".to_owned()),
                        "panic" => panic!("in the handler"),
                        _ => Ok(Response::new(Body::from("x"))),
                    }
                }
            }));
            let began = Instant::now();
            let one = || {
                let request = Request::get("/x").body(Body::empty()).unwrap();
                tokio::spawn(service.clone().oneshot(request))
            };
            let leader = one();
            until("somebody leads", || layer.flights() == 1).await;
            let others: Vec<_> = (0..99).map(|_| one()).collect();
            until("all follow", || layer.followers() == 99).await;
            if case.starts_with("leader") {
                leader.abort();
            }
            together.notify_one();
            let leader = leader.await;
            let others = join_all(others).await;
            println!("{case}: {} call, {:?}", calls.load(SeqCst), began.elapsed());
            let status = match case {
                "failure" => 502,
                "panic" => 500,
                _ => 200,
            };
            for other in others {
                assert_eq!(other.unwrap().unwrap().status(), status, "{case}");
            }
            match case {
                "failure" => assert_eq!(leader.unwrap().unwrap_err(), "down"),
                "panic" => assert_eq!(leader.unwrap().unwrap().status(), 500),
                "success" => assert_eq!(leader.unwrap().unwrap().status(), 200),
                _ => assert!(leader.unwrap_err().is_cancelled()),
            }
            assert_eq!(calls.load(SeqCst), 1, "{case}");
            assert_eq!(layer.flights(), 0, "{case}");
        }
    });
}
