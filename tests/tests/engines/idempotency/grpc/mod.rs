//! gRPC by tonic, and plain HTTP with tower's `Retry`: the layer in a server, the client's layer before it.

mod calls;
mod comes_back;
mod hooks;
mod over_the_cap;
mod retries;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tower::{Layer, Service, ServiceExt};
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer, LogicalCall, RequestBody};

use super::scene::{Engine, Shop, in_time};

pub const ORDER: &str = "/shop.Shop/Order";
const WATCH: &str = "/shop.Shop/Watch";
/// Of a long answer.
const LONG: usize = 200;
/// Answers more than is kept, and then how it went.
const PRINT: &str = "/shop.Shop/Print";
const PRINTED: usize = 2 << 20;

/// Messages as they are: no code is generated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

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

/// Why an order was refused: it is there already.
#[derive(Debug)]
struct Taken;

impl std::error::Error for Taken {}

impl std::fmt::Display for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the order is there already")
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
    if request.uri().path() == PRINT {
        let print = tower::service_fn(move |request: tonic::Request<Bytes>| {
            shop.begin();
            let fails = request
                .metadata()
                .get("x-do")
                .is_some_and(|does| does == "fail");
            let mut messages = vec![Ok(Bytes::from(vec![b'x'; PRINTED]))];
            if fails {
                messages.push(Err(Status::unavailable("come again")));
            }
            let messages = futures_util::stream::iter(messages);
            std::future::ready(Ok::<_, Status>(tonic::Response::new(messages)))
        });
        return server.server_streaming(print, request).await;
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
                "taken" => {
                    let mut status = Status::internal("the database refused the order");
                    status.set_source(Arc::new(Taken));
                    return Err(status);
                }
                _ => {}
            }
            let mut answer = format!("order {n}");
            if does == "long" {
                answer.push_str(&".".repeat(LONG));
            }
            let mut response = tonic::Response::new(Bytes::from(answer));
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

pub async fn serve<S, B>(service: S, http2: bool) -> SocketAddr
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
pub struct Call {
    pub key: Option<&'static str>,
    pub call: Option<LogicalCall>,
    pub does: &'static str,
    pub body: &'static str,
}

pub const CALL: Call = Call {
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

    pub async fn over<S, R>(self, service: S) -> Result<tonic::Response<Bytes>, Status>
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

pub fn is_replay(metadata: &tonic::metadata::MetadataMap) -> bool {
    metadata.contains_key("idempotent-replayed")
}

async fn two<E: Engine>(place: &E, shop: &Shop) -> [Channel; 2] {
    let one = Server::start(place, shop, |builder| builder).await;
    let other = Server::start(place, shop, |builder| builder).await;
    [one.channel().await, other.channel().await]
}

/// A message as it is sent.
pub fn framed(message: &[u8]) -> Bytes {
    let mut frame = vec![0];
    frame.put_u32(u32::try_from(message.len()).expect("a short message"));
    frame.extend_from_slice(message);
    frame.into()
}
