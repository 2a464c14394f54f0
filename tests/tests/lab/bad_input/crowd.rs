//! Ten thousand repeats of one key, at once.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use system_tests::client::{post, until};
use system_tests::programs::Lab;
use tokio::net::TcpStream;

use super::all_effects;
use crate::engines::{Engine, on_engine};

on_engine!(memory Memory: ten_thousand_at_once_run_once,);
#[cfg(feature = "redis")]
on_engine!(redis Redis: ten_thousand_at_once_run_once,);
#[cfg(feature = "postgres")]
on_engine!(postgres Postgres: ten_thousand_at_once_run_once,);

const LINES: usize = 50;
const CALLS: usize = 200;
/// A debug build on a busy machine answers thousands of calls, one after the other.
const LONG: Duration = Duration::from_secs(900);

async fn line(lab: &Lab) -> SendRequest<Empty<Bytes>> {
    let socket = TcpStream::connect(lab.address()).await.expect("it listens");
    let io = TokioIo::new(socket);
    let line = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
    let (send, connection) = line.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    send
}

/// One call on a line that others use, too.
async fn ask(mut line: SendRequest<Empty<Bytes>>, uri: String) -> (u16, HeaderMap, Bytes) {
    let request = Request::post(uri)
        .header("idempotency-key", "k")
        .header("x-lab", "delay=3000")
        .body(Empty::new())
        .expect("a request");
    let answer = line.send_request(request).await.expect("an answer");
    let (head, body) = answer.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    (head.status.as_u16(), head.headers, body)
}

async fn ten_thousand_at_once_run_once(on: Engine) {
    let server = Watched::start(on);
    let lab = server.lab();
    assert_eq!(post(lab.address(), "/orders").send().await.status, 201);
    let lines = join_all((0..LINES).map(|_| line(&lab))).await;
    let uri = format!("http://{}/orders", lab.address());
    let calls = (0..LINES * CALLS).map(|n| {
        let line = lines[n % LINES].clone();
        tokio::spawn(ask(line, uri.clone()))
    });
    let calls: Vec<_> = calls.collect();
    let most = server.watch();
    let answers = tokio::time::timeout(LONG, join_all(calls)).await;
    let answers = answers.expect("each is answered");
    let most = most.stop().await;

    let mut seen = BTreeMap::new();
    for answer in answers {
        let (status, headers, body) = answer.expect("no panic");
        let said: Value = serde_json::from_slice(&body).expect("JSON");
        let what = match (status, headers.contains_key("idempotent-replayed")) {
            (201, false) => "fresh".to_owned(),
            (201, true) => "replayed".to_owned(),
            _ => {
                assert!(headers.contains_key("retry-after"), "{status} {said}");
                format!("{status} {}", said["code"].as_str().unwrap_or("?"))
            }
        };
        *seen.entry(what).or_insert(0) += 1;
    }
    assert_eq!(seen.get("fresh"), Some(&1), "{seen:?}");
    let allowed = [
        "fresh",
        "replayed",
        "409 in-progress",
        "503 store-unavailable",
    ];
    assert!(
        seen.keys().all(|what| allowed.contains(&what.as_str())),
        "{seen:?}"
    );
    assert_eq!(all_effects(&lab).await, 2, "{seen:?}");
    // A dozen; some more where calls time out, and their connection is given up for another.
    assert!(most <= 64, "{most} connections to the store: {seen:?}");

    // On such a line: a body that is empty and one that is not there are two payloads.
    let again = || ask(lines[0].clone(), uri.clone());
    let is_replay =
        |(_, headers, _): &(u16, HeaderMap, Bytes)| headers.contains_key("idempotent-replayed");
    until("it is known", again, is_replay).await;
    assert_eq!(all_effects(&lab).await, 2);
}

/// An engine whose connections are counted, where it has any.
struct Watched {
    #[cfg(any(feature = "redis", feature = "postgres"))]
    own: Option<std::sync::Arc<crate::engines::Own>>,
}

impl Watched {
    #[cfg(any(feature = "redis", feature = "postgres"))]
    fn start(on: Engine) -> Self {
        let own = (on != Engine::Memory).then(|| crate::engines::Own::start(on).into());
        Self { own }
    }

    #[cfg(not(any(feature = "redis", feature = "postgres")))]
    fn start(_: Engine) -> Self {
        Self {}
    }

    fn lab(&self) -> Lab {
        #[cfg(any(feature = "redis", feature = "postgres"))]
        if let Some(own) = &self.own {
            return own.place().lab(&[]);
        }
        Lab::start(&[])
    }

    /// Looks again and again for the most connections at a time.
    fn watch(&self) -> Most {
        #[cfg(any(feature = "redis", feature = "postgres"))]
        if let Some(own) = self.own.clone() {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let looks = tokio::task::spawn_blocking(move || {
                let mut most = own.connections();
                let pause = Duration::from_millis(50);
                while stopped.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    most = most.max(own.connections());
                }
                most
            });
            return Most(Some((stop, looks)));
        }
        Most(None)
    }
}

/// The most that was seen.
struct Most(Option<(std::sync::mpsc::Sender<()>, tokio::task::JoinHandle<usize>)>);

impl Most {
    async fn stop(self) -> usize {
        let Some((stop, looks)) = self.0 else {
            return 0;
        };
        drop(stop);
        looks.await.expect("no panic")
    }
}
