//! The client's side: one key for one logical call.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, BoxFuture};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tower::retry::{Policy, Retry, RetryLayer};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_claim::http::KeySyntax;
use tower_idempotency::{CallError, IdempotencyKeyBuilder, IdempotencyKeyLayer, LogicalCall};

use crate::support::*;

type Sent = Full<Bytes>;

/// A server that fails a few times and writes down the keys it is sent. Panics when called unready.
#[derive(Debug)]
struct Server {
    log: Arc<Mutex<Vec<Option<String>>>>,
    answers: Arc<Mutex<Vec<Response<Bytes>>>>,
    ready: bool,
}

impl Clone for Server {
    fn clone(&self) -> Self {
        Self {
            log: Arc::clone(&self.log),
            answers: Arc::clone(&self.answers),
            ready: false,
        }
    }
}

impl Server {
    /// Answers these, then 201 for ever.
    fn answering(answers: impl IntoIterator<Item = Response<Bytes>>) -> Self {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        Self {
            log: Arc::default(),
            answers: Arc::new(Mutex::new(answers)),
            ready: false,
        }
    }

    fn keys(&self) -> Vec<Option<String>> {
        self.log.lock().unwrap().clone()
    }

    /// The one key of all attempts.
    #[track_caller]
    fn one_key(&self, attempts: usize) -> String {
        let keys = self.keys();
        assert_eq!(keys.len(), attempts);
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        keys[0].clone().unwrap()
    }
}

impl Service<Request<Sent>> for Server {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = future::Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called unready");
        let key = request.headers().get("idempotency-key");
        let key = key.map(|key| key.to_str().unwrap().to_owned());
        self.log.lock().unwrap().push(key);
        let answer = self.answers.lock().unwrap().pop();
        future::ready(Ok(answer.unwrap_or_else(|| status(201))))
    }
}

fn status(status: u16) -> Response<Bytes> {
    Response::builder()
        .status(status)
        .body(Bytes::new())
        .unwrap()
}

fn busy(retry_after: &str) -> Response<Bytes> {
    let mut response = status(409);
    let value = retry_after.parse().unwrap();
    response.headers_mut().insert("retry-after", value);
    response
}

fn order() -> Request<Sent> {
    Request::post("/orders").body(Full::from("x")).unwrap()
}

/// Retries a 503, a few times, at once.
#[derive(Clone)]
struct Twice(usize);

impl<B, R, E> Policy<Request<B>, Response<R>, E> for Twice
where
    B: Clone,
{
    type Future = future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<B>,
        result: &mut Result<Response<R>, E>,
    ) -> Option<Self::Future> {
        let failed = result
            .as_ref()
            .is_ok_and(|response| response.status() == StatusCode::SERVICE_UNAVAILABLE);
        self.0 = self.0.checked_sub(1).filter(|_| failed)?;
        Some(future::ready(()))
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

fn paused() -> IdempotencyKeyBuilder {
    IdempotencyKeyLayer::builder().clock(Arc::new(tower_claim::TokioClock::new()))
}

#[tokio::test(start_paused = true)]
async fn above_the_retries_every_attempt_has_one_key() {
    let server = Server::answering([status(503), status(503)]);
    let client = IdempotencyKeyLayer::new().layer(Retry::new(Twice(2), server.clone()));
    let response = client.clone().oneshot(order()).await.unwrap();
    assert_eq!(response.status(), 201);
    let first = server.one_key(3);
    let key = KeySyntax::Strict.parse(first.as_bytes()).unwrap();
    assert_eq!(key.as_client_text().unwrap().len(), 36);
    // The next call is another intent.
    client.oneshot(order()).await.unwrap();
    assert_ne!(server.keys()[3], Some(first));
}

#[tokio::test(start_paused = true)]
async fn below_the_retries_a_logical_call_keeps_its_key() {
    let server = Server::answering([status(503), status(503)]);
    let client = Retry::new(Twice(2), IdempotencyKeyLayer::new().layer(server.clone()));
    let call = LogicalCall::new();
    let mut request = order();
    request.extensions_mut().insert(call.clone());
    client.oneshot(request).await.unwrap();
    let key = server.one_key(3);
    assert_eq!(key.trim_matches('"'), call.key().unwrap());
}

#[tokio::test(start_paused = true)]
async fn above_and_below_the_retries_is_one_layer() {
    let server = Server::answering([status(503), status(503)]);
    let keys = IdempotencyKeyLayer::new();
    let client = ServiceBuilder::new()
        .layer(keys.clone())
        .layer(RetryLayer::new(Twice(2)))
        .layer(keys)
        .service(server.clone());
    client.oneshot(order()).await.unwrap();
    server.one_key(3);
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_builds_each_attempt_anew_keeps_the_key_by_its_call() {
    let server = Server::answering([status(503), status(503)]);
    let layer = IdempotencyKeyLayer::builder().bare().build().unwrap();
    let mut client = layer.layer(server.clone());
    let call = LogicalCall::resumed("invoice 7", Duration::ZERO).unwrap();
    loop {
        let request = Request::post("/orders").extension(call.clone());
        let request = request.body(Full::from("x")).unwrap();
        let response = client.ready().await.unwrap().call(request).await.unwrap();
        if response.status() == 201 {
            break;
        }
    }
    assert_eq!(server.one_key(3), "invoice 7");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_a_key_keeps_it_and_one_that_changes_nothing_gets_none() {
    let server = Server::answering([]);
    let client = IdempotencyKeyLayer::new().layer(server.clone());
    let mut mine = order();
    let headers: &mut HeaderMap = mine.headers_mut();
    headers.insert("idempotency-key", "mine".parse().unwrap());
    client.clone().oneshot(mine).await.unwrap();
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        let mut request = order();
        *request.method_mut() = method;
        client.clone().oneshot(request).await.unwrap();
    }
    assert_eq!(server.keys(), [Some("mine".to_owned()), None, None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_sent_gives_its_place_back_though_its_service_lives_on() {
    let limited = tower::limit::ConcurrencyLimit::new(Server::answering([]), 1);
    let mut client = paused().build().unwrap().layer(limited);
    let mut another = client.clone();
    let mut late = order();
    let call = LogicalCall::resumed("k", ms(24 * 3_600_000)).unwrap();
    late.extensions_mut().insert(call);
    let ready = ServiceExt::<Request<Sent>>::ready(&mut client).await;
    let late = ready.unwrap().call(late);
    assert!(matches!(late.await, Err(CallError::KeyExpired { .. })));
    let ready = ServiceExt::<Request<Sent>>::ready(&mut another);
    let place = tokio::time::timeout(ms(1000), ready).await;
    assert!(place.unwrap().is_ok());
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_not_sent_once_the_server_may_have_forgotten_its_key() {
    let (hour, minute) = (ms(3_600_000), ms(60_000));
    let server = Server::answering([]);
    let client = paused().build().unwrap().layer(server.clone());
    let call = LogicalCall::new();
    let attempt = || {
        let mut request = order();
        request.extensions_mut().insert(call.clone());
        client.clone().oneshot(request)
    };
    attempt().await.unwrap();
    tokio::time::sleep(24 * hour - 15 * minute - ms(1)).await;
    attempt().await.unwrap();
    tokio::time::sleep(ms(1)).await;
    let error = attempt().await.unwrap_err();
    let age = 24 * hour - 15 * minute;
    assert_eq!(error, CallError::KeyExpired { age });
    assert!(!error.is_retryable());
    server.one_key(2);

    let resumed = LogicalCall::resumed("k", 24 * hour).unwrap();
    let mut request = order();
    request.extensions_mut().insert(resumed);
    assert!(client.oneshot(request).await.is_err());
    server.one_key(2);
}

#[tokio::test(start_paused = true)]
async fn it_comes_back_when_the_server_says_and_not_for_ever() {
    let clock = tokio::time::Instant::now();
    let client = |limit: Duration, server: &Server| {
        let layer = paused().wait_for_outcome(limit).build().unwrap();
        layer.layer(server.clone())
    };
    let server = Server::answering([busy("2"), busy("3")]);
    let response = client(ms(5_000), &server).oneshot(order()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), clock.elapsed()),
        (201, ms(5_000))
    );
    server.one_key(3);

    // Told to come later than the limit, it comes at the limit, and the answer of then stands.
    let server = Server::answering([busy("30"), busy("30")]);
    let response = client(ms(5_000), &server).oneshot(order()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), clock.elapsed()),
        (409, ms(10_000))
    );
    server.one_key(2);
    let server = Server::answering([busy("2"), busy("30")]);
    let response = client(ms(5_000), &server).oneshot(order()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), clock.elapsed()),
        (201, ms(15_000))
    );
    server.one_key(3);

    // A conflict that does not say when is the application's own.
    let server = Server::answering([status(409)]);
    let response = client(ms(5_000), &server).oneshot(order()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), clock.elapsed()),
        (409, ms(15_000))
    );

    // Without the setting it is an answer like any other.
    let server = Server::answering([busy("2")]);
    let client = paused().build().unwrap().layer(server.clone());
    let response = client.oneshot(order()).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), clock.elapsed()),
        (409, ms(15_000))
    );
}

#[tokio::test(start_paused = true)]
async fn it_does_not_come_back_with_a_key_that_expires_meanwhile() {
    let server = Server::answering([busy("2"), busy("2"), busy("2")]);
    let layer = paused()
        .lifetime(ms(5_000), ms(1_000))
        .wait_for_outcome(ms(60_000))
        .build()
        .unwrap();
    let response = layer.layer(server.clone()).oneshot(order()).await.unwrap();
    assert_eq!(response.status(), 409);
    server.one_key(2);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_cloned_is_sent_once() {
    let server = Server::answering([busy("1"), busy("1"), busy("1")]);
    let layer = paused()
        .wait_for_outcome_by(ms(60_000), |body: &Sent| {
            let short = http_body::Body::size_hint(body).exact() < Some(10);
            short.then(|| body.clone())
        })
        .build()
        .unwrap();
    let client = layer.layer(server.clone());
    let long = order().map(|_| Full::from("0123456789"));
    assert_eq!(client.clone().oneshot(long).await.unwrap().status(), 409);
    assert_eq!(server.keys().len(), 1);
    assert_eq!(client.oneshot(order()).await.unwrap().status(), 201);
    assert_eq!(server.keys().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_work_are_refused_when_built() {
    let lifetime = IdempotencyKeyLayer::builder().lifetime(ms(10), ms(10));
    assert_eq!(lifetime.build().unwrap_err().setting(), "lifetime");
    let wait = IdempotencyKeyLayer::builder().wait_for_outcome(ms(0));
    assert_eq!(wait.build().unwrap_err().setting(), "wait_for_outcome");
}

/// The layer on both sides: the first attempt's answer is lost, the second finds the first one running, and is
/// given its answer.
#[tokio::test(start_paused = true)]
async fn with_the_layer_on_both_sides_a_lost_answer_costs_no_second_run() {
    let app = App::new();
    let service = app.service();
    // Loses what takes longer than a second: the server goes on.
    let wire = tower::service_fn(move |request: Request<Sent>| {
        let service = service.clone();
        async move {
            let request = request.map(|body| body.map_err(|never| match never {}).boxed_unsync());
            let answer = tokio::time::timeout(ms(1_000), service.oneshot(request)).await;
            match answer {
                Ok(answer) => Ok(answer?.map(as_body)),
                Err(_late) => Ok::<_, io::Error>(status(503).map(body_of)),
            }
        }
    });
    let keys = paused().wait_for_outcome(ms(120_000)).build().unwrap();
    let client = ServiceBuilder::new()
        .layer(keys.clone())
        .layer(RetryLayer::new(Twice(2)))
        .layer(keys)
        .service(wire);
    let mut slow = order();
    slow.headers_mut()
        .insert("x-do", "delay=2000".parse().unwrap());
    let answer = soon(client.oneshot(slow)).await.unwrap();
    let answer = read(answer).await;
    assert!(answer.is_replay(), "{answer:?}");
    assert_eq!((answer.status.as_u16(), app.effects()), (201, 1));
}

/// Over real HTTP, with hyper's client and a server that hangs up after the work is done.
#[cfg(feature = "axum")]
#[tokio::test]
async fn over_a_socket_a_retry_is_given_the_first_answer() {
    use axum::Router;
    use axum::routing::post;
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let handler =
        move || async move { format!("order {}", counted.fetch_add(1, Ordering::SeqCst) + 1) };
    let once = tower_idempotency::IdempotencyLayer::new(tower_claim::MemoryStore::new());
    let answers = Arc::new(AtomicUsize::new(0));
    // The first answer is lost between the server and the client.
    let lossy = axum::middleware::map_response(move |response: Response<axum::body::Body>| {
        let first = answers.fetch_add(1, Ordering::SeqCst) == 0;
        future::ready(if first {
            status(503).map(axum::body::Body::from)
        } else {
            response
        })
    });
    let router: Router = Router::new().route("/orders", post(handler).layer(once).layer(lossy));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });

    let http: Client<_, Sent> = Client::builder(TokioExecutor::new()).build_http();
    let client = IdempotencyKeyLayer::new().layer(Retry::new(Twice(2), http));
    let request = Request::post(format!("http://{at}/orders")).body(Full::from("x"));
    let response = client.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.headers()["idempotent-replayed"], "true");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(
        (&body[..], runs.load(Ordering::SeqCst)),
        (&b"order 1"[..], 1)
    );
}

/// The shape of a tonic channel: a body that cannot be cloned, a boxed future, an error of its own. It keeps what it is
/// sent: each attempt's frames, its trailers, and how it broke off.
#[derive(Clone)]
struct Channel {
    server: Server,
    sent: Arc<Mutex<Vec<Answer>>>,
}

impl Channel {
    fn answering(answers: impl IntoIterator<Item = Response<Bytes>>) -> Self {
        Self {
            server: Server::answering(answers),
            sent: Arc::default(),
        }
    }

    /// What was sent: the bodies, `None` of one that broke off.
    fn bodies(&self) -> Vec<Option<String>> {
        let sent = self.sent.lock().unwrap();
        let text = |sent: &Answer| sent.body.is_ok().then(|| sent.text().to_owned());
        sent.iter().map(text).collect()
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, tower::BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), tower::BoxError>> {
        Service::poll_ready(&mut self.server, cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let call = self
            .server
            .call(Request::from_parts(parts, Full::from("x")));
        let sent = Arc::clone(&self.sent);
        Box::pin(async move {
            let body = read(Response::new(body)).await;
            sent.lock().unwrap().push(body);
            Ok(call.await?.map(body_of))
        })
    }
}

/// What is going, told in the way of gRPC.
fn aborted() -> Response<Bytes> {
    let mut aborted = status(200);
    let headers = aborted.headers_mut();
    headers.insert("grpc-status", "10".parse().unwrap());
    headers.insert("retry-after", "1".parse().unwrap());
    aborted
}

/// The message of a call, in two frames of unknown length, and what comes behind them.
fn message(end: Result<Frame<Bytes>, io::Error>) -> Request<Body> {
    let data = |text: &'static str| Ok(Frame::data(Bytes::from(text)));
    let frames = futures_util::stream::iter([data("one "), data("coffee"), end]);
    let body = BodyExt::boxed_unsync(StreamBody::new(frames));
    Request::post("/shop.Shop/Order").body(body).unwrap()
}

fn sum() -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    Frame::trailers(trailers)
}

fn reading(
    at_most: usize,
    channel: &Channel,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = CallError<tower::BoxError>> + use<>
{
    let layer = paused().wait_for_outcome_read(ms(10_000), at_most, BodyExt::boxed_unsync);
    layer.build().unwrap().layer(channel.clone())
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_cloned_is_read_and_sent_again_whole() {
    let channel = Channel::answering([aborted(), aborted()]);
    let client = reading(10, &channel);
    let answer = client.oneshot(message(Ok(sum()))).await.unwrap();
    assert_eq!(answer.status(), 201);
    channel.server.one_key(3);
    assert_eq!(
        channel.bodies(),
        [(); 3].map(|()| Some("one coffee".to_owned()))
    );
    for sent in &*channel.sent.lock().unwrap() {
        assert_eq!(sent.trailers.as_ref().unwrap()["x-sum"], "7");
    }
}

/// What was read of it goes first.
#[tokio::test(start_paused = true)]
async fn a_body_over_the_bound_is_sent_once_and_whole() {
    for at_most in [0, 3, 4, 9] {
        let channel = Channel::answering([aborted(), aborted()]);
        let client = reading(at_most, &channel);
        let answer = client.oneshot(message(Ok(sum()))).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "10", "as it was answered");
        channel.server.one_key(1);
        assert_eq!(channel.bodies(), [Some("one coffee".to_owned())]);
        let sent = channel.sent.lock().unwrap();
        assert_eq!(sent[0].trailers.as_ref().unwrap()["x-sum"], "7");
    }
    // One that says how long it is is not even read.
    let channel = Channel::answering([aborted(), aborted()]);
    let long = Request::post("/shop.Shop/Order").body(body_of("one coffee"));
    let answer = reading(9, &channel).oneshot(long.unwrap()).await.unwrap();
    assert_eq!(answer.headers()["grpc-status"], "10");
    assert_eq!(channel.bodies(), [Some("one coffee".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_does_so_for_the_server_and_is_sent_once() {
    for at_most in [3, 100] {
        let channel = Channel::answering([aborted(), aborted()]);
        let broken = message(Err(io::Error::other("the disk is gone")));
        let answer = reading(at_most, &channel).oneshot(broken).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "10");
        let sent = channel.sent.lock().unwrap();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].body, Err("the disk is gone".to_owned()));
    }
}

/// The length that a body tells decides of its framing.
#[tokio::test(start_paused = true)]
async fn a_body_that_was_read_tells_its_length_where_it_did_before() {
    let hints: Arc<Mutex<Vec<_>>> = Arc::default();
    let seen = Arc::clone(&hints);
    let wire = tower::service_fn(move |request: Request<Body>| {
        seen.lock()
            .unwrap()
            .push(http_body::Body::size_hint(request.body()).exact());
        future::ready(Ok::<_, io::Error>(status(201).map(body_of)))
    });
    let layer = paused().wait_for_outcome_read(ms(10_000), 100, BodyExt::boxed_unsync);
    let client = layer.build().unwrap().layer(wire);
    let told = Request::post("/").body(body_of("one coffee")).unwrap();
    client.clone().oneshot(told).await.unwrap();
    client
        .oneshot(message(Ok(Frame::data("!".into()))))
        .await
        .unwrap();
    assert_eq!(*hints.lock().unwrap(), [Some(10), None]);
}
