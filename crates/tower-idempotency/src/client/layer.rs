//! The layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use tower_claim::http::Gate;
use tower_claim::{Clock, Entropy};
use tower_layer::Layer;

use super::builder::IdempotencyKeyBuilder;
use super::call::Form;
use super::repeat::NoRepeat;
use super::service::IdempotencyKey;

/// Sends each logical call under one `Idempotency-Key`, however often it is sent: the client's side of
/// [`IdempotencyLayer`](crate::IdempotencyLayer), or of any server that knows the field.
///
/// - A request that changes something (POST, PATCH, PUT, DELETE) and has no key is given a random one. One that
///   has a key keeps it.
/// - **Above** the retries (tower's `Retry`, a client that retries by itself) that is all: what is below clones
///   the request with its key. **Below** them each attempt is a request of its own: put a
///   [`LogicalCall`](crate::LogicalCall) into the request's extensions, and its clones bring the key along. Above
///   *and* below, with clones of one layer value, does both: the upper one draws the key, the lower one watches
///   its age.
/// - An attempt that comes so late that the server may have forgotten the key is not sent
///   ([`CallError::KeyExpired`](crate::CallError::KeyExpired)): it could run the work again.
/// - Told to ([`wait_for_outcome`](IdempotencyKeyBuilder::wait_for_outcome)), it comes back after a 409 with
///   `Retry-After`, which is how a server says that the first attempt is still running. It retries nothing
///   else.
///
/// It works over any `Service<http::Request<B>>`: hyper's client, a tonic channel, reqwest behind an adaptor.
///
/// ```
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt};
/// use tower_idempotency::IdempotencyKeyLayer;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = tower::service_fn(async |request: Request<&'static str>| {
///     let key = request.headers().get("idempotency-key").cloned();
///     Ok::<_, std::convert::Infallible>(Response::new(key))
/// });
/// let client = IdempotencyKeyLayer::new().layer(client);
///
/// let key = client.oneshot(Request::post("/orders").body("one coffee")?).await?.into_body();
/// assert_eq!(key.map(|key| key.len()), Some(38), "a UUID in quotes");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct IdempotencyKeyLayer<C = NoRepeat> {
    settings: Arc<Settings>,
    repeat: C,
}

/// What all clones of one layer value share.
pub(super) struct Settings {
    pub(super) header: HeaderName,
    pub(super) form: Form,
    pub(super) gate: Gate,
    /// From this age on a key is not sent.
    pub(super) oldest: Duration,
    pub(super) wait: Option<Duration>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
}

impl IdempotencyKeyLayer {
    /// A layer with safe defaults: those that the settings of [`builder`](Self::builder) state.
    pub fn new() -> Self {
        Self::builder().defaults()
    }

    /// Starts a layer with settings.
    pub fn builder() -> IdempotencyKeyBuilder {
        IdempotencyKeyBuilder::new()
    }
}

impl<C> IdempotencyKeyLayer<C> {
    pub(super) fn of(settings: Settings, repeat: C) -> Self {
        Self {
            settings: Arc::new(settings),
            repeat,
        }
    }
}

impl Default for IdempotencyKeyLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S, C: Clone> Layer<S> for IdempotencyKeyLayer<C> {
    type Service = IdempotencyKey<S, C>;

    fn layer(&self, inner: S) -> IdempotencyKey<S, C> {
        IdempotencyKey::new(inner, Arc::clone(&self.settings), self.repeat.clone())
    }
}

impl<C> fmt::Debug for IdempotencyKeyLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKeyLayer")
            .field("header", &self.settings.header)
            .field("gate", &self.settings.gate)
            .field("oldest", &self.settings.oldest)
            .field("wait", &self.settings.wait)
            .finish_non_exhaustive()
    }
}
