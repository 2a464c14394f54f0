//! One app under the layer, with a handler that counts its effects and then misbehaves on command.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};
use tower_claim::testing::FaultStore;
use tower_claim::{Clock, MemoryStore, RunOn, TokioClock};
use tower_idempotency::{
    Idempotency, IdempotencyBuilder, IdempotencyLayer, IdempotentRun, NoEffect, RequestBody,
};

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type Handler =
    BoxCloneSyncService<Request<RequestBody<Body>>, Response<Body>, io::Error>;
pub(crate) type Service = Idempotency<Handler>;

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A store in paused time, and the effects of the handlers over it.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) store: FaultStore<MemoryStore>,
    pub(crate) clock: Arc<dyn Clock>,
    effects: Arc<AtomicU64>,
}

impl App {
    pub(crate) fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let memory = MemoryStore::builder().clock(Arc::clone(&clock)).build();
        Self {
            store: FaultStore::with_clock(memory.unwrap(), Arc::clone(&clock)),
            clock,
            effects: Arc::default(),
        }
    }

    /// A builder in paused time.
    pub(crate) fn builder(&self) -> IdempotencyBuilder {
        IdempotencyLayer::builder(self.store.clone())
            .clock(Arc::clone(&self.clock))
            .run_on(RunOn::Task)
            .scope(|req| {
                let tenant = req.headers.get("x-tenant")?;
                tenant.to_str().ok().map(str::to_owned)
            })
    }

    /// The app with default settings.
    pub(crate) fn service(&self) -> Service {
        self.under(&self.builder().build().unwrap())
    }

    pub(crate) fn under(&self, layer: &IdempotencyLayer) -> Service {
        let effects = Arc::clone(&self.effects);
        layer.layer(BoxCloneSyncService::new(tower::service_fn(
            move |request| misbehave(request, Arc::clone(&effects)),
        )))
    }

    pub(crate) fn effects(&self) -> u64 {
        self.effects.load(Ordering::SeqCst)
    }

    pub(crate) fn records(&self) -> usize {
        self.store.inner().stats().records
    }
}

/// Reads the body, counts one effect, does what the header `x-do` says.
async fn misbehave(
    request: Request<RequestBody<Body>>,
    effects: Arc<AtomicU64>,
) -> Result<Response<Body>, io::Error> {
    let (parts, body) = request.into_parts();
    let flags = parts.headers.get("x-do").map(|v| v.to_str().unwrap());
    let flags = flags.unwrap_or_default().to_owned();
    let flag = |name: &str| {
        flags.split('&').find_map(|f| {
            let (n, v) = f.split_once('=').unwrap_or((f, ""));
            (n == name).then(|| v.to_owned())
        })
    };
    let number = |name: &str| flag(name).map(|v| v.parse::<u64>().unwrap());
    let status = |s: u64| StatusCode::from_u16(u16::try_from(s).unwrap()).unwrap();

    let read = body.collect().await.map_err(io::Error::other)?.to_bytes();
    if let Some(code) = number("reject") {
        let response = Response::builder().status(status(code)).extension(NoEffect);
        return Ok(response.body(body_of("rejected")).unwrap());
    }
    let n = effects.fetch_add(1, Ordering::SeqCst) + 1;
    if flag("commit").is_some() {
        let run = parts.extensions.get::<IdempotentRun>().unwrap();
        run.point_of_no_return().await.map_err(io::Error::other)?;
    }
    #[cfg(feature = "stage")]
    if flag("mark").is_some() {
        tower_stage::mark(tower_stage::Stage::Persisted);
    }
    if let Some(delay) = number("delay") {
        tokio::time::sleep(ms(delay)).await;
    }
    if flag("panic").is_some() {
        panic!("told to");
    }
    if flag("error").is_some() {
        return Err(io::Error::other("told to"));
    }
    let code = number("status").unwrap_or(201);
    let body = if code == 204 {
        body_of("")
    } else {
        match number("size") {
            None => body_of(format!("{{\"n\":{n},\"read\":{}}}", read.len())),
            Some(size) => pieces(
                usize::try_from(size).unwrap(),
                number("chunks").unwrap_or(1),
                number("chunk_delay").map(ms),
                number("body_error"),
                flag("body_panic").is_some(),
                match (flag("nolen"), flag("ends")) {
                    (None, _) => Tells::Length,
                    (Some(_), Some(_)) => Tells::End,
                    (Some(_), None) => Tells::Nothing,
                },
            ),
        }
    };
    let mut response = Response::builder()
        .status(status(code))
        .header("location", format!("/orders/{n}"))
        .header("etag", "\"v1\"")
        .header("link", "</a>; rel=a")
        .header("set-cookie", "a=1")
        .header("link", "</b>; rel=b")
        .header("set-cookie", "b=2")
        .header("traceparent", "00-0-0-01")
        .header("x-name", HeaderValue::from_bytes(b"caf\xE9").unwrap())
        .body(body)
        .unwrap();
    response.extensions_mut().insert(Extension(n));
    Ok(response)
}

/// Survives on the first response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Extension(pub(crate) u64);

/// The body of a layer as the body of an inner service.
pub(crate) fn as_body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes, Error = tower_idempotency::BoxError> + Send + 'static,
{
    body.map_err(io::Error::other).boxed_unsync()
}

pub(crate) fn body_of(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn pieces(
    size: usize,
    chunks: u64,
    pause: Option<Duration>,
    error_at: Option<u64>,
    panics: bool,
    tells: Tells,
) -> Body {
    let chunks = usize::try_from(chunks).unwrap();
    let frames = async_stream(chunks, move |i| async move {
        if i > 0
            && let Some(pause) = pause
        {
            tokio::time::sleep(pause).await;
        }
        if error_at == Some(i as u64) {
            return Err(io::Error::other("the body broke off"));
        }
        assert!(!(panics && i == 1), "told to");
        let len = if i + 1 == chunks {
            size - (chunks - 1) * (size / chunks)
        } else {
            size / chunks
        };
        Ok(Frame::data(Bytes::from(vec![b'x'; len])))
    });
    Telling {
        body: StreamBody::new(frames).boxed_unsync(),
        left: size as u64,
        tells,
    }
    .boxed_unsync()
}

fn async_stream<F, Fut>(
    n: usize,
    frame: F,
) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, io::Error>> + Send
where
    F: Fn(usize) -> Fut + Send + Copy + 'static,
    Fut: Future<Output = Result<Frame<Bytes>, io::Error>> + Send,
{
    futures_util::stream::unfold(0, move |i| async move {
        if i == n {
            return None;
        }
        Some((frame(i).await, i + 1))
    })
}

/// What a body tells beside its frames.
#[derive(Clone, Copy, PartialEq)]
enum Tells {
    Nothing,
    /// That its last frame was the last.
    End,
    /// That, and how long it is.
    Length,
}

struct Telling {
    body: Body,
    left: u64,
    tells: Tells,
}

impl http_body::Body for Telling {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            let read = frame.data_ref().map_or(0, |d| d.len() as u64);
            self.left = self.left.saturating_sub(read);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && self.tells != Tells::Nothing
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self.tells {
            Tells::Length => http_body::SizeHint::with_exact(self.left),
            Tells::End | Tells::Nothing => http_body::SizeHint::new(),
        }
    }
}

/// A request, piece by piece.
#[derive(Clone)]
pub(crate) struct Ask {
    method: Method,
    uri: String,
    headers: HeaderMap,
    body: Option<Bytes>,
}

pub(crate) fn post(uri: &str) -> Ask {
    Ask {
        method: Method::POST,
        uri: uri.to_owned(),
        headers: HeaderMap::new(),
        body: Some(Bytes::from_static(b"{}")),
    }
}

impl Ask {
    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        self.headers.append(name, value);
        self
    }

    /// Flags of the handler; not part of the fingerprint.
    pub(crate) fn flags(mut self, flags: &str) -> Self {
        self.headers
            .insert("x-do", HeaderValue::from_str(flags).unwrap());
        self
    }

    pub(crate) fn body(mut self, body: &'static str) -> Self {
        self.body = Some(Bytes::from_static(body.as_bytes()));
        self
    }

    pub(crate) fn no_body(mut self) -> Self {
        self.body = None;
        self
    }

    pub(crate) fn request(&self) -> Request<Body> {
        self.with(match &self.body {
            None => http_body_util::Empty::new()
                .map_err(|never| match never {})
                .boxed_unsync(),
            Some(bytes) => body_of(bytes.clone()),
        })
    }

    pub(crate) fn with(&self, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.parse().unwrap();
        *request.headers_mut() = self.headers.clone();
        if let Some(bytes) = &self.body {
            request
                .headers_mut()
                .insert("content-length", HeaderValue::from(bytes.len()));
        }
        request
    }

    pub(crate) async fn send(&self, service: &Service) -> Answer {
        send(service, self.request()).await
    }
}

/// A response that was read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Result<Bytes, String>,
    pub(crate) trailers: Option<HeaderMap>,
}

/// Paused time jumps to the deadline when nothing else can happen: what hangs is told by its test's name.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    let out = tokio::time::timeout(ms(24 * 3_600_000), future).await;
    out.unwrap_or_else(|_| panic!("it hangs"))
}

pub(crate) async fn send(service: &Service, request: Request<Body>) -> Answer {
    soon(async {
        let response = service.clone().oneshot(request).await.unwrap();
        read(response).await
    })
    .await
}

pub(crate) async fn read<B>(response: Response<B>) -> Answer
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let (parts, body) = response.into_parts();
    let (body, trailers) = match body.collect().await {
        Ok(whole) => {
            let trailers = whole.trailers().cloned();
            (Ok(whole.to_bytes()), trailers)
        }
        Err(error) => (Err(error.to_string()), None),
    };
    Answer {
        status: parts.status,
        headers: parts.headers,
        body,
        trailers,
    }
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.body.as_ref().unwrap()).unwrap()
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.headers
            .get("idempotent-replayed")
            .is_some_and(|v| v == "true")
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> &str {
        let text = self.text();
        let Some((_, rest)) = text.split_once("\"code\":\"") else {
            panic!("no refusal: {} {text}", self.status);
        };
        rest.split('"').next().unwrap()
    }

    pub(crate) fn retry_after(&self) -> Option<u64> {
        let value = self.headers.get("retry-after")?;
        value.to_str().ok()?.parse().ok()
    }

    #[track_caller]
    pub(crate) fn assert_fresh(&self, status: u16) -> &Self {
        assert_eq!(
            (self.status.as_u16(), self.is_replay()),
            (status, false),
            "{self:?}"
        );
        self
    }

    #[track_caller]
    pub(crate) fn assert_replay_of(&self, first: &Answer) -> &Self {
        assert!(self.is_replay(), "{self:?}");
        assert_eq!((self.status, &self.body), (first.status, &first.body));
        self
    }

    #[track_caller]
    pub(crate) fn assert_refused(&self, status: u16, code: &str) -> &Self {
        assert_eq!(
            (self.status.as_u16(), self.code()),
            (status, code),
            "{self:?}"
        );
        assert!(!self.is_replay());
        self
    }
}

pub(crate) fn hint(response: &Response<impl http_body::Body>) -> Option<u64> {
    response.body().size_hint().exact()
}
