//! Engines, processes over them, and the shop they serve.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};
use tower_claim::testing::{FaultStore, Operation};
use tower_claim::{ClaimAdmin, ClaimStore};
use tower_idempotency::{
    BoxError, Idempotency, IdempotencyBuilder, IdempotencyLayer, IdempotentRun, RequestBody,
};

pub const SECOND: Duration = Duration::from_secs(1);
/// No test waits longer for one thing.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Who come to a crowd together.
const AT_ONCE: usize = 20;
/// So long that only an event can wake.
#[cfg(any(feature = "redis", feature = "etcd"))]
pub const NO_POLL: Duration = Duration::from_secs(300);

/// A place among the tests that run at once: a crowd each, they would be too much for a small machine.
pub async fn turn() -> SemaphorePermit<'static> {
    static TURNS: Semaphore = Semaphore::const_new(4);
    TURNS.acquire().await.expect("it is never closed")
}

/// Waits for a condition.
pub async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    let out = tokio::time::timeout(PATIENCE, future).await;
    out.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// An engine, and a place of its own on it for one test.
pub trait Engine: Sized + Send + Sync + 'static {
    type Store: ClaimStore + ClaimAdmin + Clone;

    /// Whether it takes records of several MiB.
    const KEEPS_LARGE: bool = true;

    /// A place where nobody else is.
    fn place() -> impl Future<Output = Self> + Send;

    /// The store of one more process there: connections of its own.
    fn store(&self) -> impl Future<Output = Self::Store> + Send;

    /// What another process needs to find it; `None` where two cannot share it.
    fn address(&self) -> Option<String>;

    /// The store of this process, at an address.
    fn at(address: &str) -> impl Future<Output = Self::Store> + Send;
}

/// A process' worth: a store with connections of its own, and a layer over it.
pub struct Process<E: Engine> {
    pub store: FaultStore<E::Store>,
    pub layer: IdempotencyLayer,
    service: Service,
}

pub type Body = UnsyncBoxBody<Bytes, BoxError>;
type Inner = BoxCloneSyncService<Request<RequestBody<Full<Bytes>>>, Response<Body>, BoxError>;
type Service = Idempotency<Inner>;

impl<E: Engine> Process<E> {
    /// With a layer that this setting makes.
    pub async fn with(
        place: &E,
        shop: &Shop,
        set: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
    ) -> Self {
        Self::over(place.store().await, shop, set)
    }

    /// Over a store that is there.
    pub fn over(
        store: E::Store,
        shop: &Shop,
        set: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
    ) -> Self {
        let store = FaultStore::new(store);
        let builder = IdempotencyLayer::builder(store.clone()).scope(tenant);
        // What is shown here is not what an engine may lose: that has hours of its own.
        let layer = set(builder.trust_forgetful_store()).build();
        let layer = layer.expect("good settings");
        Self {
            store,
            service: shop.under(&layer),
            layer,
        }
    }

    pub async fn of(place: &E, shop: &Shop) -> Self {
        Self::with(place, shop, |builder| builder).await
    }

    pub fn calls(&self, operation: Operation) -> u64 {
        self.store.faults().calls().of(operation)
    }

    pub async fn ask(&self, ask: &Ask) -> Answer {
        in_time("an answer", answer(self.service.clone(), ask.request())).await
    }

    pub fn start(&self, ask: &Ask) -> JoinHandle<Answer> {
        begin(self.service.clone(), ask.request())
    }

    pub fn start_many(&self, many: usize, ask: &Ask) -> Vec<JoinHandle<Answer>> {
        (0..many).map(|_| self.start(ask)).collect()
    }

    /// A crowd that waits, once all of it does. It comes a few at a time: a busy machine is no part of what is shown.
    pub async fn crowd(&self, many: usize, ask: &Ask) -> Vec<JoinHandle<Answer>> {
        let mut crowd = Vec::new();
        while crowd.len() < many {
            crowd.extend(self.start_many(AT_ONCE.min(many - crowd.len()), ask));
            until("all wait", async || self.layer.waiting() == crowd.len()).await;
        }
        crowd
    }
}

/// In a task of its own.
pub fn begin(service: Service, request: Request<Full<Bytes>>) -> JoinHandle<Answer> {
    tokio::spawn(answer(service, request))
}

pub async fn all(asked: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for asked in asked {
        answers.push(in_time("an answer", asked).await.expect("no panic"));
    }
    answers
}

fn tenant(parts: &http::request::Parts) -> Option<String> {
    let tenant = parts.headers.get("x-tenant")?;
    tenant.to_str().ok().map(str::to_owned)
}

/// What is done, whichever process does it; and the door that some of it waits at.
#[derive(Clone)]
pub struct Shop {
    begun: Arc<AtomicUsize>,
    door: Arc<Semaphore>,
}

impl Shop {
    pub fn new() -> Self {
        Self {
            begun: Arc::default(),
            door: Arc::new(Semaphore::new(0)),
        }
    }

    pub fn effects(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub async fn until_effects(&self, many: usize) {
        until("the handler runs", async || self.effects() == many).await;
    }

    /// Counts one effect; which it is.
    pub fn begin(&self) -> usize {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Waits at the door.
    pub async fn pass(&self) {
        let permit = self.door.acquire().await;
        permit.expect("it is never closed").forget();
    }

    /// Lets one go on that waits.
    pub fn let_go(&self) {
        self.door.add_permits(1);
    }

    pub fn under(&self, layer: &IdempotencyLayer) -> Service {
        let shop = self.clone();
        layer.layer(BoxCloneSyncService::new(tower::service_fn(
            move |request| shop.clone().serve(request),
        )))
    }

    /// Counts one effect, and does what the header `x-do` says.
    async fn serve(
        self,
        request: Request<RequestBody<Full<Bytes>>>,
    ) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let does = Does::of(&parts.headers);
        body.collect().await?;
        let n = self.begin();
        if does.told("commit") {
            let run = parts.extensions.get::<IdempotentRun>();
            run.ok_or("no run")?.point_of_no_return().await?;
        }
        if does.told("wait") {
            self.pass().await;
        }
        assert!(!does.told("panic"), "told to");
        let size = does.number("size");
        let body = match (does.told("stream"), size) {
            (false, None) => full(format!("order {n}")),
            (false, Some(size)) => full(filler(n, size)),
            (true, size) => {
                // Of unknown length.
                let text = Bytes::from(filler(n, size.unwrap_or(30)));
                let frames = futures_util::stream::unfold(text, |mut left| async move {
                    let frame = left.split_to(left.len().min(1024));
                    (!frame.is_empty()).then_some((Ok::<_, BoxError>(Frame::data(frame)), left))
                });
                StreamBody::new(frames).boxed_unsync()
            }
        };
        let status = does.number("status").unwrap_or(201);
        let response = Response::builder()
            .status(StatusCode::from_u16(u16::try_from(status)?)?)
            .header("location", format!("/orders/{n}"))
            .header("link", "</a>; rel=a")
            .header("link", "</b>; rel=b");
        Ok(response.body(body)?)
    }
}

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Bytes that tell their run, and are no text.
fn filler(n: usize, size: usize) -> Vec<u8> {
    (0..size)
        .map(|at| u8::try_from((at * 31 + n) % 256).unwrap_or_default())
        .collect()
}

struct Does(String);

impl Does {
    fn of(headers: &HeaderMap) -> Self {
        let told = headers.get("x-do").and_then(|told| told.to_str().ok());
        Self(told.unwrap_or_default().to_owned())
    }

    fn told(&self, what: &str) -> bool {
        self.0.split('&').any(|told| told == what)
    }

    fn number(&self, name: &str) -> Option<usize> {
        let mut told = self.0.split('&').filter_map(|told| told.split_once('='));
        told.find_map(|(n, value)| (n == name).then(|| value.parse().ok())?)
    }
}

/// A request for an order.
#[derive(Clone)]
pub struct Ask {
    key: String,
    does: String,
    tenant: Option<String>,
    order: &'static str,
}

pub fn ask(key: &str) -> Ask {
    Ask {
        key: key.to_owned(),
        does: String::new(),
        tenant: None,
        order: "one coffee",
    }
}

impl Ask {
    /// The handler does that, if it runs: no part of what is asked.
    pub fn does(mut self, does: &str) -> Self {
        does.clone_into(&mut self.does);
        self
    }

    pub fn tenant(mut self, tenant: &str) -> Self {
        self.tenant = Some(tenant.to_owned());
        self
    }

    /// That, and not one coffee.
    pub fn orders(mut self, order: &'static str) -> Self {
        self.order = order;
        self
    }

    pub fn request(&self) -> Request<Full<Bytes>> {
        let request = Request::post("/orders")
            .header("idempotency-key", &self.key)
            .header("x-do", &self.does);
        let request = match &self.tenant {
            Some(tenant) => request.header("x-tenant", tenant),
            None => request,
        };
        request
            .body(Full::from(self.order))
            .expect("a good request")
    }
}

/// A response that was read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub async fn answer<S, R>(service: S, request: Request<Full<Bytes>>) -> Answer
where
    S: tower::Service<Request<Full<Bytes>>, Response = Response<R>>,
    S::Error: std::fmt::Debug,
    R: http_body::Body<Data = Bytes>,
    R::Error: std::fmt::Debug,
{
    let response = service.oneshot(request).await.expect("a response");
    let (parts, body) = response.into_parts();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: body.collect().await.expect("a whole body").to_bytes(),
    }
}

impl Answer {
    pub fn is_replay(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    pub fn retry_after(&self) -> Option<u64> {
        let value = self.headers.get("retry-after")?;
        value.to_str().ok()?.parse().ok()
    }

    #[track_caller]
    pub fn assert_fresh(&self, status: u16) -> &Self {
        assert_eq!((self.status, self.is_replay()), (status, false), "{self:?}");
        self
    }

    /// Equal in every byte that is kept.
    #[track_caller]
    pub fn assert_replay_of(&self, first: &Self) -> &Self {
        assert!(self.is_replay(), "{self:?}");
        assert_eq!((self.status, &self.body), (first.status, &first.body));
        for name in ["location", "link"] {
            let of = |answer: &Self| -> Vec<_> {
                let values = answer.headers.get_all(name).iter();
                values.cloned().collect()
            };
            assert_eq!(of(self), of(first), "{name}");
        }
        self
    }

    #[track_caller]
    pub fn assert_refused(&self, status: u16, code: &str) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.json()["code"], code, "{self:?}");
        self
    }
}

/// The one that ran, and replays of it.
#[track_caller]
pub fn one_ran(answers: &[Answer]) -> &Answer {
    let (replays, ran): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.is_replay());
    assert_eq!(ran.len(), 1, "{ran:?}");
    for replay in replays {
        replay.assert_replay_of(ran[0]);
    }
    ran[0]
}
