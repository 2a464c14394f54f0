//! gRPC by tonic, and plain HTTP with tower's `Retry`: the layer in a server, the client's layer before it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::retry::{Policy, Retry};
use tower::{Layer, Service, ServiceExt};
use tower_claim::http::Gate;
use tower_idempotency::{
    CallError, IdempotencyBuilder, IdempotencyKeyLayer, IdempotencyLayer, LogicalCall, OnBusy,
    RequestBody,
};

use super::on_each_engine;
use super::scene::{Engine, PATIENCE, SECOND, Shop, begin, in_time, until};

on_each_engine!(
    a_unary_call_is_replayed_by_another_process_with_its_status,
    refusals_are_trailers_only,
    a_call_that_streams_is_left_alone_outside_the_gate,
    a_call_over_a_channel_keeps_its_key_over_retries,
    a_call_under_retry_keeps_its_key,
    a_client_comes_back_when_the_server_says,
    a_call_is_not_sent_when_its_key_is_too_old,
);

const ORDER: &str = "/shop.Shop/Order";
const WATCH: &str = "/shop.Shop/Watch";

/// Messages as they are: no code is generated.
#[derive(Debug, Clone, Copy, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// The shop by gRPC.
async fn grpc<B>(shop: Shop, request: Request<B>) -> Response<tonic::body::Body>
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<tower_idempotency::BoxError> + Send,
{
    let mut server = tonic::server::Grpc::new(Plain);
    if request.uri().path() == WATCH {
        let watch = tower::service_fn(move |_: tonic::Request<Bytes>| {
            let shop = shop.clone();
            async move {
                let n = shop.begin();
                // One message now, the other behind the door.
                let messages = futures_util::stream::unfold(0, move |sent| {
                    let shop = shop.clone();
                    async move {
                        match sent {
                            0 => Some((Ok(Bytes::from(format!("order {n}"))), 1)),
                            1 => {
                                shop.pass().await;
                                Some((Ok(Bytes::from_static(b"end")), 2))
                            }
                            _ => None,
                        }
                    }
                });
                Ok::<_, Status>(tonic::Response::new(Box::pin(messages)))
            }
        });
        return server.server_streaming(watch, request).await;
    }
    let order = tower::service_fn(move |request: tonic::Request<Bytes>| {
        let shop = shop.clone();
        async move {
            let n = shop.begin();
            let does = request.metadata().get("x-do");
            let does = does.and_then(|does| does.to_str().ok()).unwrap_or_default();
            match does {
                "wait" => shop.pass().await,
                "refuse" => return Err(Status::failed_precondition(format!("no coffee {n}"))),
                "fail" => return Err(Status::unavailable("come again")),
                _ => {}
            }
            let mut response = tonic::Response::new(Bytes::from(format!("order {n}")));
            let value = n.to_string().parse().expect("digits");
            response.metadata_mut().insert("x-order", value);
            Ok(response)
        }
    });
    server.unary(order, request).await
}

/// A server of its own over a store of its own.
struct Server {
    address: SocketAddr,
    layer: IdempotencyLayer,
    /// Of each request that came, its key.
    keys: Arc<Mutex<Vec<Option<String>>>>,
}

impl Server {
    async fn start<E: Engine>(
        place: &E,
        shop: &Shop,
        set: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
    ) -> Self {
        let builder = IdempotencyLayer::builder(place.store().await).one_tenant();
        let layer = set(builder).build().expect("good settings");
        let keys: Arc<Mutex<Vec<_>>> = Arc::default();
        let (shop, seen) = (shop.clone(), Arc::clone(&keys));
        let inner = tower::service_fn(move |request: Request<RequestBody<Incoming>>| {
            let shop = shop.clone();
            async move { Ok::<_, Infallible>(grpc(shop, request).await) }
        });
        let guarded = layer.layer(inner);
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let key = request.headers().get("idempotency-key");
            let key = key.and_then(|key| key.to_str().ok()).map(str::to_owned);
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(key);
            guarded.clone().oneshot(request)
        });
        let address = serve(service, true).await;
        Self {
            address,
            layer,
            keys,
        }
    }

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address));
        endpoint
            .expect("an address")
            .connect()
            .await
            .expect("it listens")
    }

    fn keys(&self) -> Vec<Option<String>> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.clone()
    }
}

async fn serve<S, B>(service: S, http2: bool) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<tower_idempotency::BoxError>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (io, service) = (TokioIo::new(socket), service.clone());
            let service = TowerToHyperService::new(service);
            tokio::spawn(async move {
                if http2 {
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(io, service).await;
                } else {
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(io, service).await;
                }
            });
        }
    });
    address
}

/// A call in the words of a client of tonic's.
struct Call {
    key: Option<&'static str>,
    call: Option<LogicalCall>,
    does: &'static str,
    body: &'static str,
}

const CALL: Call = Call {
    key: None,
    call: None,
    does: "",
    body: "one coffee",
};

impl Call {
    fn request(self) -> tonic::Request<Bytes> {
        let mut request = tonic::Request::new(Bytes::from_static(self.body.as_bytes()));
        let metadata = request.metadata_mut();
        metadata.insert("x-do", self.does.parse().expect("ASCII"));
        if let Some(key) = self.key {
            metadata.insert("idempotency-key", key.parse().expect("ASCII"));
        }
        if let Some(call) = self.call {
            request.extensions_mut().insert(call);
        }
        request
    }

    async fn over<S, R>(self, service: S) -> Result<tonic::Response<Bytes>, Status>
    where
        S: Service<Request<tonic::body::Body>, Response = Response<R>>,
        S::Error: Into<tower_idempotency::BoxError>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<tower_idempotency::BoxError>,
    {
        let mut client = tonic::client::Grpc::new(service);
        let call = async {
            let ready = client.ready().await.map_err(Into::into);
            ready.map_err(|error: tower_idempotency::BoxError| Status::from_error(error))?;
            let path = PathAndQuery::from_static(ORDER);
            client.unary(self.request(), path, Plain).await
        };
        in_time("an answer", call).await
    }
}

fn is_replay(metadata: &tonic::metadata::MetadataMap) -> bool {
    metadata.contains_key("idempotent-replayed")
}

async fn two<E: Engine>(place: &E, shop: &Shop) -> [Channel; 2] {
    let one = Server::start(place, shop, |builder| builder).await;
    let other = Server::start(place, shop, |builder| builder).await;
    [one.channel().await, other.channel().await]
}

async fn a_unary_call_is_replayed_by_another_process_with_its_status<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let [one, other] = two(&place, &shop).await;
    let call = |key| Call {
        key: Some(key),
        ..CALL
    };
    let first = call("k").over(one.clone()).await.expect("OK");
    assert!(!is_replay(first.metadata()));
    let again = call("k").over(other.clone()).await.expect("OK");
    assert!(is_replay(again.metadata()));
    assert_eq!(again.get_ref(), first.get_ref());
    let nth = |answer: &tonic::Response<Bytes>| answer.metadata().get("x-order").cloned();
    assert!(nth(&first).is_some() && nth(&again) == nth(&first));

    // An outcome is an outcome, also where it is an error of the work.
    let refuse = || Call {
        does: "refuse",
        ..call("refused")
    };
    let first = refuse().over(one.clone()).await.expect_err("refused");
    let again = refuse().over(other.clone()).await.expect_err("refused");
    assert_eq!(first.code(), Code::FailedPrecondition);
    assert_eq!(
        (again.code(), again.message()),
        (first.code(), first.message())
    );
    assert!(is_replay(again.metadata()) && !is_replay(first.metadata()));
    assert_eq!(shop.effects(), 2);

    // What may be tried again is.
    let fail = || Call {
        does: "fail",
        ..call("failed")
    };
    for _ in 0..2 {
        let failed = fail().over(one.clone()).await.expect_err("it fails");
        assert_eq!(failed.code(), Code::Unavailable);
    }
    // Without a key, nothing is kept.
    for _ in 0..2 {
        assert!(!is_replay(
            CALL.over(one.clone()).await.expect("OK").metadata()
        ));
    }
    assert_eq!(shop.effects(), 6);
}

/// The head of a call's answer, and whether anything follows it.
async fn head(mut channel: Channel, call: Call) -> (Response<()>, bool) {
    let (metadata, extensions, message) = call.request().into_parts();
    drop(extensions);
    let mut frame = vec![0];
    frame.put_u32(u32::try_from(message.len()).expect("a short message"));
    frame.extend_from_slice(&message);
    let mut request = Request::post(format!("http://shop{ORDER}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(Full::from(frame)))
        .expect("a good request");
    request.headers_mut().extend(metadata.into_headers());
    let answer = async {
        let ready = channel.ready().await.expect("it is there");
        let response = ready.call(request).await.expect("an answer");
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a whole one");
        let follows = body.trailers().is_some() || !body.to_bytes().is_empty();
        (Response::from_parts(head, ()), follows)
    };
    in_time("an answer", answer).await
}

async fn refusals_are_trailers_only<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let strict = |builder: IdempotencyBuilder| builder.require_key();
    let one = Server::start(&place, &shop, strict).await.channel().await;
    let other = Server::start(&place, &shop, strict).await.channel().await;
    let held = || Call {
        key: Some("k"),
        does: "wait",
        ..CALL
    };
    let first = tokio::spawn(held().over(one));
    shop.until_effects(1).await;
    let other_payload = || Call {
        body: "two coffees",
        ..held()
    };
    for (call, status, code) in [
        (held(), "10", "in-progress"),
        (other_payload(), "9", "key-reused"),
        (CALL, "3", "key-missing"),
    ] {
        let (head, follows) = head(other.clone(), call).await;
        assert_eq!(head.status(), StatusCode::OK, "{code}");
        assert_eq!(head.headers()["content-type"], "application/grpc", "{code}");
        assert_eq!(head.headers()["grpc-status"], status, "{code}");
        assert!(!follows, "{code}");
        let comes_back = head.headers().contains_key("retry-after");
        assert_eq!(comes_back, code == "in-progress", "{code}");
    }
    // And what a client of tonic's makes of one.
    let refused = other_payload().over(other).await.expect_err("refused");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    shop.let_go();
    first.await.expect("no panic").expect("OK");
    assert_eq!(shop.effects(), 1);
}

async fn a_call_that_streams_is_left_alone_outside_the_gate<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let server = Server::start(&place, &shop, |builder| {
        builder.gate(Gate::new().when(|parts| parts.uri.path() == ORDER))
    })
    .await;
    let channel = server.channel().await;
    for n in 1..=2 {
        let call = async {
            let mut client = tonic::client::Grpc::new(channel.clone());
            client.ready().await.expect("it is there");
            let request = Call {
                key: Some("k"),
                ..CALL
            };
            let path = PathAndQuery::from_static(WATCH);
            let stream = client.server_streaming(request.request(), path, Plain);
            let mut stream = stream.await.expect("OK").into_inner();
            // The first message comes while the call goes on.
            let first = stream.message().await.expect("OK");
            assert_eq!(first, Some(Bytes::from(format!("order {n}"))));
            shop.let_go();
            assert_eq!(stream.message().await.expect("OK"), Some("end".into()));
            assert_eq!(stream.message().await.expect("OK"), None);
        };
        in_time("the stream", call).await;
    }
    assert_eq!((server.layer.counts().runs, shop.effects()), (0, 2));
    let order = || Call {
        key: Some("k"),
        ..CALL
    };
    order().over(channel.clone()).await.expect("OK");
    let again = order().over(channel).await.expect("OK");
    assert!(is_replay(again.metadata()));
}

async fn a_call_over_a_channel_keeps_its_key_over_retries<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let waits = |builder: IdempotencyBuilder| builder.on_busy(OnBusy::Wait(PATIENCE * 2));
    let one = Server::start(&place, &shop, waits).await;
    let other = Server::start(&place, &shop, waits).await;
    let keys = IdempotencyKeyLayer::new();
    let (first, second) = (
        keys.layer(one.channel().await),
        keys.layer(other.channel().await),
    );
    let call = LogicalCall::new();
    let attempt = || Call {
        call: Some(call.clone()),
        does: "wait",
        ..CALL
    };
    // The first answer never comes: its caller is gone.
    let lost = tokio::spawn(attempt().over(first));
    shop.until_effects(1).await;
    lost.abort();
    let again = tokio::spawn(attempt().over(second.clone()));
    until("the repeat waits", async || other.layer.waiting() == 1).await;
    shop.let_go();
    let again = again.await.expect("no panic").expect("OK");
    assert!(is_replay(again.metadata()));
    assert_eq!(shop.effects(), 1);
    let sent = [one.keys(), other.keys()].concat();
    assert!(
        sent[0].is_some() && sent.iter().all(|key| *key == sent[0]),
        "{sent:?}"
    );

    // Another call has another key.
    CALL.over(second.clone()).await.expect("OK");
    CALL.over(second).await.expect("OK");
    let (sent, two) = (sent[0].clone(), other.keys());
    assert!(two[1].is_some() && two[1] != two[2] && !two[1..].contains(&sent));
    assert_eq!(shop.effects(), 3);
}

/// The shop by plain HTTP/1; of each request that came, its key.
async fn http<E: Engine>(
    place: &E,
    shop: &Shop,
    set: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
) -> (SocketAddr, IdempotencyLayer, Arc<Mutex<Vec<String>>>) {
    let builder = IdempotencyLayer::builder(place.store().await).one_tenant();
    let layer = set(builder).build().expect("good settings");
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let (service, seen) = (shop.under(&layer), Arc::clone(&keys));
    let service = tower::service_fn(move |request: Request<Incoming>| {
        let (service, seen) = (service.clone(), Arc::clone(&seen));
        async move {
            let (parts, body) = request.into_parts();
            let key = parts.headers.get("idempotency-key");
            let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(key.to_owned());
            let body = body.collect().await.expect("a whole body").to_bytes();
            let request = Request::from_parts(parts, Full::new(body));
            let answer = begin(service, request).await.expect("no panic");
            let mut response = Response::new(Full::new(answer.body));
            *response.status_mut() = StatusCode::from_u16(answer.status).expect("a status");
            *response.headers_mut() = answer.headers;
            Ok::<_, Infallible>(response)
        }
    });
    (serve(service, false).await, layer, keys)
}

/// Tries again what may be tried again; after a first failure nothing fails any more.
#[derive(Clone)]
struct Twice(usize);

impl<R, E> Policy<Request<Full<Bytes>>, Response<R>, CallError<E>> for Twice {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        request: &mut Request<Full<Bytes>>,
        result: &mut Result<Response<R>, CallError<E>>,
    ) -> Option<std::future::Ready<()>> {
        let may_help = match result {
            Ok(response) => response.status().is_server_error(),
            Err(error) => error.is_retryable(),
        };
        self.0 = self.0.checked_sub(usize::from(may_help))?;
        request.headers_mut().remove("x-do");
        may_help.then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Request<Full<Bytes>>) -> Option<Request<Full<Bytes>>> {
        Some(request.clone())
    }
}

fn order(address: SocketAddr, call: LogicalCall, does: &str) -> Request<Full<Bytes>> {
    let request = Request::post(format!("http://{address}/orders"));
    let request = request.header("x-do", does).extension(call);
    request
        .body(Full::from("one coffee"))
        .expect("a good request")
}

async fn a_call_under_retry_keeps_its_key<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let (address, _layer, keys) = http(&place, &shop, |builder| builder).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let client = Retry::new(Twice(1), IdempotencyKeyLayer::new().layer(client));
    let call = LogicalCall::new();
    for (n, does) in ["status=503", "status=503"].into_iter().enumerate() {
        let asked = client.clone().oneshot(order(address, call.clone(), does));
        let answer = in_time("an answer", asked).await.expect("an answer");
        assert_eq!(answer.status(), 201);
        // The second time the outcome is there.
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), n == 1);
    }
    assert_eq!(shop.effects(), 2, "the failure, and the run");
    let sent = keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(sent.len(), 3);
    assert!(
        !sent[0].is_empty() && sent.iter().all(|key| *key == sent[0]),
        "{sent:?}"
    );
    assert_eq!(
        call.key().map(|key| format!("\"{key}\"")),
        Some(sent[0].clone())
    );
}

async fn a_client_comes_back_when_the_server_says<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    // So that the rest of a lease is soon over.
    let short = |builder: IdempotencyBuilder| builder.lease(3 * SECOND);
    let (address, _one, _) = http(&place, &shop, short).await;
    let (other, layer, keys) = http(&place, &shop, short).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let first = IdempotencyKeyLayer::new().layer(client.clone());
    let waits = IdempotencyKeyLayer::builder().wait_for_outcome(PATIENCE);
    let waits = waits.build().expect("good settings").layer(client);
    let call = LogicalCall::new();
    let run = tokio::spawn(first.oneshot(order(address, call.clone(), "wait")));
    shop.until_effects(1).await;
    let repeat = tokio::spawn(waits.oneshot(order(other, call, "wait")));
    until("it is told to come again", async || {
        layer.counts().in_progress > 0
    })
    .await;
    shop.let_go();
    let run = in_time("the run", run)
        .await
        .expect("no panic")
        .expect("an answer");
    let repeat = in_time("the repeat", repeat).await.expect("no panic");
    let repeat = repeat.expect("an answer");
    assert_eq!(
        (run.status(), repeat.status()),
        (StatusCode::CREATED, StatusCode::CREATED)
    );
    assert!(repeat.headers().contains_key("idempotent-replayed"));
    assert_eq!(shop.effects(), 1);
    let sent = keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(
        sent.len() >= 2 && sent.iter().all(|key| *key == sent[0]),
        "{sent:?}"
    );
}

async fn a_call_is_not_sent_when_its_key_is_too_old<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let (address, _layer, keys) = http(&place, &shop, |builder| builder).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let client = Retry::new(Twice(5), IdempotencyKeyLayer::new().layer(client));
    let day = 24 * 3600 * SECOND;
    let call = LogicalCall::resumed("8e03978e", day).expect("a good key");
    let asked = client.oneshot(order(address, call, ""));
    let refused = in_time("a word", asked).await.expect_err("it is not sent");
    assert!(matches!(refused, CallError::KeyExpired { age } if age >= day));
    assert_eq!(keys.lock().unwrap_or_else(PoisonError::into_inner).len(), 0);
    assert_eq!(shop.effects(), 0);
}
