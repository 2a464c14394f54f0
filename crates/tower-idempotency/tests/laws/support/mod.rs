//! One app under the layer, with a handler that counts its effects and then misbehaves on command.

mod ask;
mod handler;
#[cfg(feature = "tracing")]
mod log;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tower::Layer;
use tower::util::BoxCloneSyncService;
use tower_claim::testing::FaultStore;
use tower_claim::{Clock, MemoryStore, RunOn, TokioClock};
use tower_idempotency::{Idempotency, IdempotencyBuilder, IdempotencyLayer, RequestBody};

pub(crate) use ask::{Answer, Ask, hint, post, read, send};
pub(crate) use handler::Extension;
use handler::misbehave;
#[cfg(feature = "tracing")]
pub(crate) use log::{Log, Told};

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

/// Paused time jumps to the deadline when nothing else can happen: what hangs is told by its test's name.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    let out = tokio::time::timeout(ms(24 * 3_600_000), future).await;
    out.unwrap_or_else(|_| panic!("it hangs"))
}
