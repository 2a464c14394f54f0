//! Configuration.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tower_claim::http::Gate;
use tower_claim::{Clock, ConfigError, DynFenceStore, FenceStore, Refusal, SystemClock};
use tower_layer::Layer;

use super::registry::Registry;
use super::service::Fence;
use crate::keys::{IntoLeaseKey, KeyFn};
use crate::refuse::Refuse;

/// What happens to a request without a fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MissingToken {
    /// It is refused: 428 `token-missing`. The default.
    #[default]
    Require,
    /// It passes, unchecked. For the time of a migration: such a write is not fenced.
    Allow,
}

/// Lets a request in only with a fencing token that is not older than one it has seen, and ends older
/// calls before a newer one begins.
///
/// | The request's token | Answer |
/// |---|---|
/// | missing | 428 `token-missing` ([`MissingToken`]) |
/// | malformed, or for another resource | 400 `token-invalid` |
/// | lower than one admitted | 412 `token-stale`, reason `stale` |
/// | equal to the highest, other nonce | 412 `token-stale`, reason `collision` |
/// | admitted | the inner service; the [`FencingToken`](crate::FencingToken) is in the request's extensions |
/// | admitted, a newer one arrives meanwhile | its future is dropped; 412 `token-stale`, reason `superseded` |
///
/// The draining is **per process**: with several processes on one resource, check the token where the write
/// happens instead ([`FencingToken::admit`](crate::FencingToken::admit) in the write's own transaction).
/// It ends *futures*: what a call handed to a thread or to a task of its own runs on.
///
/// Keep the layer value and clone it: the calls under way are in it.
#[derive(Clone)]
pub struct FenceLayer {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn DynFenceStore>,
    pub(crate) resource: KeyFn,
    pub(crate) gate: Gate,
    pub(crate) missing: MissingToken,
    pub(crate) drain_timeout: Duration,
    pub(crate) max_ahead: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) refuse: Refuse,
    pub(crate) registry: Arc<Registry>,
}

impl FenceLayer {
    /// A guard with the default settings of [`FenceBuilder`]. `resource` names what a request writes to;
    /// `None` lets it pass.
    pub fn new<F, K>(store: impl FenceStore, resource: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoLeaseKey,
    {
        Self::builder(store, resource).finish()
    }

    /// A guard with settings of its own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_claim::MemoryFenceStore;
    /// use tower_claim::http::path_segment;
    /// use tower_lease_guard::{FenceLayer, MissingToken};
    ///
    /// let ledger = path_segment("/ledger/{id}")?; // decoded, as the name in the lease is
    /// let fence = FenceLayer::builder(MemoryFenceStore::new(), ledger)
    ///     .missing(MissingToken::Require)
    ///     .drain_timeout(Duration::from_secs(2))
    ///     .max_ahead(Duration::from_secs(3600))
    ///     .build()?;
    /// # drop::<FenceLayer>(fence);
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn builder<F, K>(store: impl FenceStore, resource: F) -> FenceBuilder
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoLeaseKey,
    {
        FenceBuilder {
            shared: Shared {
                store: Arc::new(store),
                resource: KeyFn::one(resource),
                gate: Gate::new(),
                missing: MissingToken::default(),
                drain_timeout: Duration::from_secs(5),
                max_ahead: None,
                clock: Arc::new(SystemClock),
                refuse: Refuse::default(),
                registry: Arc::default(),
            },
        }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fence<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Fence::new(inner, self.shared.clone())
    }
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.debug("FenceLayer", f)
    }
}

impl Shared {
    fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("store", &self.store)
            .field("missing", &self.missing)
            .field("drain_timeout", &self.drain_timeout)
            .field("max_ahead", &self.max_ahead)
            .field("refuse", &self.refuse)
            .finish_non_exhaustive()
    }
}

/// Settings of a [`FenceLayer`].
pub struct FenceBuilder {
    shared: Shared,
}

impl FenceBuilder {
    /// What happens to a request without a token. Default: [`MissingToken::Require`].
    #[must_use]
    pub fn missing(mut self, missing: MissingToken) -> Self {
        self.shared.missing = missing;
        self
    }

    /// Limits the guard to methods, routes, a predicate, and lets it be switched off while it runs. In
    /// [`Mode::Observe`](tower_claim::http::Mode::Observe) it looks at the headers only, reports what it
    /// would refuse (feature `tracing`), and lets everything pass. Default: everything, on.
    #[must_use]
    pub fn gate(mut self, gate: Gate) -> Self {
        self.shared.gate = gate;
        self
    }

    /// How long a newer call waits for the futures of older ones to be gone; then it is refused 503
    /// `wait-timeout`, and the older ones stay cancelled. Default: 5 s.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.shared.drain_timeout = timeout;
        self
    }

    /// Refuses a token (400 `token-invalid`) whose clock part is further than this ahead of this machine's
    /// wall clock. Without it, one forged huge token locks every honest owner out. Use it where tokens come
    /// from a store with a clock; an hour is a good value. Default: off.
    #[must_use]
    pub fn max_ahead(mut self, ahead: Duration) -> Self {
        self.shared.max_ahead = Some(ahead);
        self
    }

    /// The clock for `drain_timeout` and `max_ahead`. Default: [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.shared.clock = clock;
        self
    }

    /// Replaces the text of refusals. Keep the status: clients act on it. Default: RFC 9457 documents.
    #[must_use]
    pub fn on_refusal<F>(mut self, render: F) -> Self
    where
        F: Fn(&Refusal, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.shared.refuse = Refuse::with(render);
        self
    }

    /// The layer.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when `drain_timeout` or `max_ahead` is zero.
    pub fn build(self) -> Result<FenceLayer, ConfigError> {
        if self.shared.drain_timeout.is_zero() {
            return Err(ConfigError::new(
                "drain_timeout",
                "zero would refuse every take-over; give older calls some time to end, 5 s for instance",
            ));
        }
        if self.shared.max_ahead == Some(Duration::ZERO) {
            return Err(ConfigError::new(
                "max_ahead",
                "zero would refuse honest tokens of a clock that is a little ahead; use an hour, or leave it out",
            ));
        }
        Ok(self.finish())
    }

    fn finish(self) -> FenceLayer {
        FenceLayer {
            shared: Arc::new(self.shared),
        }
    }
}

impl fmt::Debug for FenceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.debug("FenceBuilder", f)
    }
}
