//! An upstream that counts its calls, under the layer.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_claim::TokioClock;
use tower_single_flight::http::FlightBody;
use tower_single_flight::{SingleFlightLayer, SingleFlightLayerBuilder};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// The inner service's error, and its bodies'.
#[derive(Debug, PartialEq)]
pub(crate) struct Down;

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("down")
    }
}

impl std::error::Error for Down {}

pub(crate) type TestBody = UnsyncBoxBody<Bytes, Down>;
pub(crate) type TestResponse = Response<TestBody>;
pub(crate) type TestService =
    BoxCloneSyncService<Request<TestBody>, Response<FlightBody<TestBody>>, Down>;

pub(crate) fn body(text: impl Into<Bytes>) -> TestBody {
    let never = |error: Infallible| match error {};
    Full::new(text.into()).map_err(never).boxed_unsync()
}

pub(crate) fn get(uri: &str) -> Request<TestBody> {
    Request::get(uri).body(body("")).unwrap()
}

pub(crate) fn with_header(name: &'static str, value: &str) -> Request<TestBody> {
    let mut request = get("/x");
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

pub(crate) fn ok(text: impl Into<Bytes>) -> TestResponse {
    Response::new(body(text))
}

pub(crate) fn status(code: u16) -> TestResponse {
    let mut response = ok("");
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

pub(crate) fn answer_with(name: &'static str, value: &'static str) -> TestResponse {
    let mut response = ok("");
    let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
    response.headers_mut().insert(name, value);
    response
}

pub(crate) fn builder() -> SingleFlightLayerBuilder {
    SingleFlightLayer::builder().clock(Arc::new(TokioClock::new()))
}

/// A response to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) extensions: Extensions,
    /// What came of the body, and how it ended.
    pub(crate) body: String,
    pub(crate) end: Result<Option<HeaderMap>, Down>,
}

impl Answer {
    pub(crate) async fn of(response: Response<FlightBody<TestBody>>) -> Self {
        let (parts, mut body) = response.into_parts();
        let (mut text, mut end) = (Vec::new(), Ok(None));
        while let Some(frame) = body.frame().await {
            match frame {
                Err(error) => end = Err(error),
                Ok(frame) => match frame.into_data() {
                    Ok(data) => text.extend_from_slice(&data),
                    Err(frame) => end = Ok(frame.into_trailers().ok()),
                },
            }
        }
        Self {
            status: parts.status,
            headers: parts.headers,
            extensions: parts.extensions,
            body: String::from_utf8(text).unwrap(),
            end,
        }
    }
}

/// The layer over an upstream that takes 20 ms and counts its calls.
pub(crate) struct App {
    pub(crate) layer: SingleFlightLayer,
    pub(crate) service: TestService,
    pub(crate) calls: Arc<AtomicUsize>,
    delay: Arc<OnceLock<Duration>>,
}

impl App {
    pub(crate) fn new(
        answer: impl Fn(Parts, usize) -> TestResponse + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::with(builder().build().unwrap(), answer)
    }

    /// `answer` gets the request and the number of the call, from 1.
    pub(crate) fn with(
        layer: SingleFlightLayer,
        answer: impl Fn(Parts, usize) -> TestResponse + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::of(layer, move |parts, n| {
            let answer = answer.clone();
            async move { Ok(answer(parts, n)) }
        })
    }

    pub(crate) fn failing() -> Self {
        Self::of(builder().build().unwrap(), |_, _| async { Err(Down) })
    }

    /// `/a` asks for `/b` and `/b` for `/a`, with the extensions passed on; a hop at the second time.
    pub(crate) fn nested() -> Self {
        #[derive(Clone)]
        struct Depth(u8);
        let outer = Arc::new(OnceLock::<TestService>::new());
        let again = Arc::clone(&outer);
        let app = Self::of(builder().build().unwrap(), move |parts: Parts, _| {
            let again = again.get().unwrap().clone();
            async move {
                let depth = parts.extensions.get::<Depth>().map_or(0, |d| d.0);
                if depth < 2 {
                    let mut next = get(if parts.uri.path() == "/a" { "/b" } else { "/a" });
                    *next.extensions_mut() = parts.extensions;
                    next.extensions_mut().insert(Depth(depth + 1));
                    again.oneshot(next).await?;
                }
                Ok(ok("x"))
            }
        });
        outer.set(app.service.clone()).ok().unwrap();
        app
    }

    pub(crate) fn of<F, Fut>(layer: SingleFlightLayer, answer: F) -> Self
    where
        F: Fn(Parts, usize) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<TestResponse, Down>> + Send + 'static,
    {
        let calls = Arc::new(AtomicUsize::new(0));
        let delay = Arc::new(OnceLock::new());
        let (count, pause) = (Arc::clone(&calls), Arc::clone(&delay));
        let upstream = service_fn(move |request: Request<TestBody>| {
            let n = count.fetch_add(1, SeqCst) + 1;
            let (answer, pause) = (answer.clone(), pause.get().copied());
            async move {
                tokio::time::sleep(pause.unwrap_or(20 * MS)).await;
                answer(request.into_parts().0, n).await
            }
        });
        let service = BoxCloneSyncService::new(layer.layer(upstream));
        Self {
            layer,
            service,
            calls,
            delay,
        }
    }

    pub(crate) fn slow(self, delay: Duration) -> Self {
        self.delay.set(delay).unwrap();
        self
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    pub(crate) fn send(
        &self,
        request: Request<TestBody>,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let service = self.service.clone();
        async move { Answer::of(service.oneshot(request).await.unwrap()).await }
    }

    pub(crate) fn spawn(&self, request: Request<TestBody>) -> JoinHandle<Answer> {
        tokio::spawn(self.send(request))
    }

    /// Sends the same request `n` times, the first one as leader.
    pub(crate) async fn at_once(&self, n: usize, request: Request<TestBody>) -> Vec<Answer> {
        let copy = |_| {
            let mut copy = get("/");
            *copy.method_mut() = request.method().clone();
            *copy.uri_mut() = request.uri().clone();
            *copy.headers_mut() = request.headers().clone();
            copy
        };
        self.at_once_by(n, copy).await
    }

    pub(crate) async fn at_once_by(
        &self,
        n: usize,
        request: impl Fn(usize) -> Request<TestBody>,
    ) -> Vec<Answer> {
        join_all((0..n).map(|n| self.send(request(n)))).await
    }
}
