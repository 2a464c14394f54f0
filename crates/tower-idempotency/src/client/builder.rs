//! The settings of the layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};
use http_body::Body;
use tower_claim::http::Gate;
use tower_claim::{Clock, ConfigError, Entropy, OsEntropy, SystemClock};

use super::call::Form;
use super::layer::{IdempotencyKeyLayer, Settings};
use super::read::ReadBody;
use super::repeat::{Cloned, ClonedBy, NoRepeat, ReadFirst};

/// `Idempotency-Key`.
const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
const MARGIN: Duration = Duration::from_secs(15 * 60);
/// What changes something.
const METHODS: [Method; 4] = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];

/// Builds an [`IdempotencyKeyLayer`]. Made by [`IdempotencyKeyLayer::builder`].
///
/// ```
/// use std::time::Duration;
/// use tower_idempotency::IdempotencyKeyLayer;
///
/// let keys = IdempotencyKeyLayer::builder()
///     .lifetime(Duration::from_secs(3600), Duration::from_secs(60))
///     .wait_for_outcome(Duration::from_secs(60))
///     .build()?;
/// # let _ = keys;
/// # Ok::<(), tower_claim::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct IdempotencyKeyBuilder<C = NoRepeat> {
    header: HeaderName,
    form: Form,
    gate: Gate,
    lifetime: Duration,
    margin: Duration,
    wait: Option<Duration>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    repeat: C,
}

impl IdempotencyKeyBuilder {
    pub(super) fn new() -> Self {
        Self {
            header: HEADER,
            form: Form::Quoted,
            gate: Gate::new(),
            lifetime: LIFETIME,
            margin: MARGIN,
            wait: None,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            repeat: NoRepeat,
        }
    }

    /// The layer with nothing but defaults, which need no checks.
    pub(super) fn defaults(self) -> IdempotencyKeyLayer {
        self.assemble()
    }
}

impl<C> IdempotencyKeyBuilder<C> {
    /// The field that carries the key. Default: `Idempotency-Key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.header = name;
        self
    }

    /// Writes the key without quotes, for a server that wants it so. Default: in quotes, as the IETF draft on the
    /// field asks for.
    pub fn bare(mut self) -> Self {
        self.form = Form::Bare;
        self
    }

    /// Limits the layer to methods, routes and a predicate, and holds the switch that turns it off while it runs
    /// (in observe-only mode it does nothing). Default: POST, PATCH, PUT and DELETE; a gate that names no methods
    /// stands for these four.
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// How long the server knows a key, and how long before its end an attempt is sent no more: time for the
    /// attempt itself, and for clocks. Ask the server's published policy. Default: 24 hours, 15 minutes.
    pub fn lifetime(mut self, lifetime: Duration, margin: Duration) -> Self {
        self.lifetime = lifetime;
        self.margin = margin;
        self
    }

    /// Comes back after a 409 with `Retry-After` (on gRPC `ABORTED`), when the server says, until so long has
    /// passed since the call began; told to come later than that, it comes then, once. What the server said last is the
    /// answer. The answer that is passed
    /// over is dropped unread. Waiting, it holds no connection. Default: no; a 409 is an answer like any other.
    ///
    /// Give it more than a lease of the server: `Retry-After` is the rest of the running lease, which is 30 seconds by
    /// default in [`IdempotencyLayer`](crate::IdempotencyLayer).
    ///
    /// A body must be sent again then. This clones it before it is sent; for bodies that are not `Clone` see
    /// [`wait_for_outcome_read`](Self::wait_for_outcome_read) and
    /// [`wait_for_outcome_by`](Self::wait_for_outcome_by).
    pub fn wait_for_outcome(self, limit: Duration) -> IdempotencyKeyBuilder<Cloned> {
        self.waiting(limit, Cloned)
    }

    /// The same with a function that clones the body, or answers `None` where it cannot: such a request is sent
    /// once.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_idempotency::IdempotencyKeyLayer;
    ///
    /// struct Upload(Option<String>);
    ///
    /// let keys = IdempotencyKeyLayer::builder()
    ///     .wait_for_outcome_by(Duration::from_secs(60), |body: &Upload| {
    ///         body.0.clone().map(|text| Upload(Some(text)))
    ///     })
    ///     .build()?;
    /// # let _ = keys;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn wait_for_outcome_by<B, F>(
        self,
        limit: Duration,
        clone: F,
    ) -> IdempotencyKeyBuilder<ClonedBy<F>>
    where
        F: Fn(&B) -> Option<B> + Clone + Send + Sync + 'static,
    {
        self.waiting(limit, ClonedBy(clone))
    }

    /// The same for bodies that cannot be cloned, such as a tonic channel's: it is read to its end before the call is
    /// sent, up to so many bytes, and each attempt's body is made of what was read, trailers included. One that is
    /// longer is sent once, what was read of it and then the rest as it comes; one that breaks off fails as it would
    /// have.
    ///
    /// A call whose requests depend on its answers would wait for itself: leave calls that stream out, by the
    /// [`gate`](Self::gate).
    ///
    /// ```
    /// use std::time::Duration;
    /// use axum::body::Body; // over a tonic channel: `tonic::body::Body`
    /// use tower_idempotency::IdempotencyKeyLayer;
    ///
    /// let keys = IdempotencyKeyLayer::builder()
    ///     .wait_for_outcome_read(Duration::from_secs(60), 64 * 1024, Body::new)
    ///     .build()?;
    /// # let _ = keys;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn wait_for_outcome_read<B, F>(
        self,
        limit: Duration,
        at_most: usize,
        make: F,
    ) -> IdempotencyKeyBuilder<ReadFirst<F>>
    where
        B: Body,
        F: Fn(ReadBody<B>) -> B + Clone + Send + Sync + 'static,
    {
        self.waiting(limit, ReadFirst { at_most, make })
    }

    fn waiting<D>(self, limit: Duration, repeat: D) -> IdempotencyKeyBuilder<D> {
        IdempotencyKeyBuilder {
            header: self.header,
            form: self.form,
            gate: self.gate,
            lifetime: self.lifetime,
            margin: self.margin,
            wait: Some(limit),
            clock: self.clock,
            entropy: self.entropy,
            repeat,
        }
    }

    /// The clock. Default: [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where keys are drawn from. Default: [`OsEntropy`].
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// The layer.
    ///
    /// # Errors
    ///
    /// A lifetime that its margin uses up; a wait of no length.
    pub fn build(self) -> Result<IdempotencyKeyLayer<C>, ConfigError> {
        if self.margin >= self.lifetime {
            return Err(ConfigError::new(
                "lifetime",
                "use a margin shorter than the lifetime".to_owned(),
            ));
        }
        if self.wait.is_some_and(|wait| wait.is_zero()) {
            return Err(ConfigError::new(
                "wait_for_outcome",
                "zero: leave the setting out".to_owned(),
            ));
        }
        Ok(self.assemble())
    }

    fn assemble(self) -> IdempotencyKeyLayer<C> {
        let settings = Settings {
            header: self.header,
            form: self.form,
            gate: self.gate.or_methods(METHODS),
            oldest: self.lifetime.saturating_sub(self.margin),
            wait: self.wait,
            clock: self.clock,
            entropy: self.entropy,
        };
        IdempotencyKeyLayer::of(settings, self.repeat)
    }
}

impl<C> fmt::Debug for IdempotencyKeyBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKeyBuilder")
            .field("header", &self.header)
            .field("lifetime", &self.lifetime)
            .field("margin", &self.margin)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
