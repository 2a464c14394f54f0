//! The layer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower_claim::ClaimStore;
use tower_layer::Layer;

use crate::builder::IdempotencyBuilder;
use crate::counts::Counts;
use crate::order::Misorder;
use crate::quota::TenantUsage;
use crate::service::Idempotency;
use crate::shared::Shared;

/// What records are labelled with; who shows one appends a prefix of its key.
pub(crate) const LABEL: &str = "idempotency";
/// The same of records whose runs ask a reconcile hook first.
pub(crate) const RECONCILE_LABEL: &str = "idempotency: reconcile";

/// Tells layer values apart, so that one that a request meets twice guards it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayerId(u64);

impl LayerId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Runs each business request once, and answers its repeats from the record of the first.
///
/// Clones are one layer value: they share the keeper, the counts, the limits. Keep one and clone it, since
/// axum calls `layer()` once per route.
#[derive(Clone)]
pub struct IdempotencyLayer {
    shared: Arc<Shared>,
}

impl IdempotencyLayer {
    /// A layer with safe defaults on this store: those that the settings of [`builder`](Self::builder)
    /// state. **Set a [scope](IdempotencyBuilder::scope)** where more than one tenant calls.
    pub fn new(store: impl ClaimStore) -> Self {
        Self::builder(store).defaults()
    }

    /// Starts a layer with settings.
    pub fn builder(store: impl ClaimStore) -> IdempotencyBuilder {
        IdempotencyBuilder::new(Arc::new(store))
    }

    pub(crate) fn of(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// How often the layer did what, since it was built.
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }

    /// Which layers were found on the wrong side of this one, since it was built.
    ///
    /// ```
    /// use tower::{Layer, service_fn};
    /// use tower_claim::MemoryStore;
    /// use tower_http::catch_panic::CatchPanicLayer;
    /// use tower_idempotency::{IdempotencyLayer, Misorder};
    ///
    /// let layer = IdempotencyLayer::new(MemoryStore::new());
    /// let handler = service_fn(async |_: http::Request<String>| {
    ///     Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    /// });
    /// let _service = layer.layer(CatchPanicLayer::new().layer(handler));
    /// assert_eq!(layer.misorders(), [Misorder::CatchPanicInside]);
    /// ```
    pub fn misorders(&self) -> Vec<Misorder> {
        self.shared.order.found()
    }

    /// How many handlers run, or stream a response that is being kept.
    pub fn in_flight(&self) -> usize {
        let free = self.shared.in_flight.available_permits();
        self.shared.max_in_flight.saturating_sub(free)
    }

    /// How long the oldest handler that [is in flight](Self::in_flight) has been going: one that hangs shows here.
    pub fn oldest_running(&self) -> Option<Duration> {
        self.shared.running.oldest()
    }

    /// What a tenant has in this process just now, where tenants have
    /// [quotas](IdempotencyBuilder::max_records_per_tenant); nothing where they have none. The scope as the layer's
    /// own [scope](IdempotencyBuilder::scope) answers it, `None` for the requests without one.
    pub fn tenant_usage(&self, scope: Option<&str>) -> TenantUsage {
        let quotas = self.shared.quotas.as_ref();
        quotas.map_or_else(TenantUsage::default, |quotas| quotas.usage(scope))
    }

    /// How many repeats wait for the first run of their key ([`OnBusy::Wait`](crate::OnBusy::Wait)), or for its
    /// end ([`KeyLookup`](crate::KeyLookup)).
    pub fn waiting(&self) -> usize {
        self.shared.followers.count()
    }

    /// For shutdown: refuses requests with a key (503 `shutting-down`, after which a repeat goes to a process that stays;
    /// requests without one still pass), and waits for the handlers that run detached and for what is left to the keeper.
    /// `false` when `timeout` passes first: the rest goes on.
    ///
    /// Repeats of what is finished are refused as well: whether they are that only a claim tells, and one that is granted
    /// would have to run. [`KeyLookup`](crate::KeyLookup) goes on to tell what became of a key.
    ///
    /// # Cancellation
    ///
    /// New runs stay refused; nothing else happens.
    pub async fn drain(&self, timeout: Duration) -> bool {
        let clock = self.shared.clock();
        let until = clock.now() + timeout;
        if !self.shared.detached.drain(timeout).await {
            return false;
        }
        let left = until.saturating_since(clock.now());
        self.shared.keeper.drain(left).await
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        let shared = &self.shared;
        shared.order.look_at_service::<S>(&shared.counters);
        Idempotency::new(inner, Arc::clone(shared))
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("store", self.shared.keeper.store())
            .field("entry", &self.shared.entry)
            .field("on_busy", &self.shared.on_busy)
            .field("terms", &self.shared.terms)
            .field("retention", &self.shared.retention)
            .field("max_request_body", &self.shared.max_request_body)
            .field("max_response_body", &self.shared.max_response_body)
            .field("detached", &self.shared.detached)
            .finish_non_exhaustive()
    }
}
