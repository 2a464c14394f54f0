//! Settings, and the one place where bad ones are refused.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::sync::Semaphore;
use tower_claim::http::Gate;
use tower_claim::store::MultiKey;
use tower_claim::{
    Clock, ConfigError, Entropy, KeeperBuilder, Namespace, Refusal, Renewal, RunOn, Terms,
};

use super::layer::{LABEL, LeaseGuardLayer, MAX_WAITERS, Shared};
use super::live::LiveLeases;
use crate::keys::KeyFn;
use crate::refuse::Refuse;

const LEASE: Duration = Duration::from_secs(30);

/// Settings of a [`LeaseGuardLayer`].
#[derive(Debug)]
#[must_use = "`build()` makes the layer"]
pub struct LeaseGuardBuilder {
    keeper: KeeperBuilder,
    many: bool,
    key: KeyFn,
    gate: Gate,
    lease: Duration,
    renewal: Renewal,
    max_hold: Option<Duration>,
    cooling: Duration,
    min_hold: Duration,
    stop_budget: Option<Duration>,
    wait: Option<Duration>,
    max_waiters: usize,
    namespace: Option<String>,
    label: Arc<str>,
    refuse: Refuse,
}

impl LeaseGuardBuilder {
    pub(super) fn new(keeper: KeeperBuilder, many: bool, key: KeyFn) -> Self {
        Self {
            keeper,
            many,
            key,
            gate: Gate::new(),
            lease: LEASE,
            renewal: Renewal::default(),
            max_hold: None,
            cooling: Duration::ZERO,
            min_hold: Duration::ZERO,
            stop_budget: None,
            wait: None,
            max_waiters: MAX_WAITERS,
            namespace: None,
            label: Arc::from(LABEL),
            refuse: Refuse::default(),
        }
    }

    /// How long a lease lasts without a renewal: after a crash the resource is blocked this long. At least
    /// 100 ms with renewal, 10 ms without. Default: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Whether a lease is renewed: [`Renewal::Off`] (the work is cancelled at the lease's end),
    /// [`Renewal::Always`], or [`Renewal::Progress`] (only while the work moves: calls of
    /// [`Lease::progress`](crate::Lease::progress), the response's head and its frames). Default:
    /// [`Renewal::Always`].
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = renewal;
        self
    }

    /// The longest a lease is held, renewed or not; then the work is cancelled. At least the lease. Default:
    /// 10 min, or the lease where that is longer.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// How long after a *lapse* nobody gets the resource (423 `cooling`): time for late effects of a
    /// crashed owner to arrive. A release does not cool. Default: zero, off.
    pub fn cooling(mut self, cooling: Duration) -> Self {
        self.cooling = cooling;
        self
    }

    /// The resource stays taken at least this long, also when the work is done sooner: a second send right
    /// behind the first is refused (423 `cooling`). This is not idempotence, which remembers the outcome.
    /// Default: zero, off.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.min_hold = min_hold;
        self
    }

    /// How long before its lapse a lease counts as lost and the work is dropped. Default: a twentieth of
    /// the lease, 500 ms at most.
    pub fn stop_budget(mut self, budget: Duration) -> Self {
        self.stop_budget = Some(budget);
        self
    }

    /// Waits up to this long for a resource that another holds; then 503 `wait-timeout`. Nothing is held
    /// meanwhile, and who comes first is not promised. Default: no wait, 423 `leased` at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How many requests wait at once, in all ([`wait`](Self::wait)); one more is refused 503 `overloaded`.
    /// Default: 10,000.
    pub fn max_waiters(mut self, limit: usize) -> Self {
        self.max_waiters = limit;
        self
    }

    /// Keeps applications that share a store apart: 1 to 64 of `A-Z a-z 0-9 _ -`. Default: `default`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The holder's name as others see it in their refusals and on boards; a short prefix of the key is
    /// added. Not a secret: a host or a pod, for instance. Default: `lease`.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = label.into();
        self
    }

    /// Limits the layer to methods, routes, a predicate, and lets it be switched off while it runs. In
    /// [`Mode::Observe`](tower_claim::http::Mode::Observe) it takes leases where it can, never waits,
    /// refuses or cancels, and reports what it would refuse (feature `tracing`). Default: everything, on.
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// The clock of deadlines and waits. Default: [`SystemClock`](tower_claim::SystemClock).
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.keeper = self.keeper.clock(clock);
        self
    }

    /// Where nonces come from. Default: [`OsEntropy`](tower_claim::OsEntropy).
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.keeper = self.keeper.entropy(entropy);
        self
    }

    /// A circuit breaker before the store: after so many claims in a row that it did not answer, requests are refused at
    /// once (503 `store-unavailable`) for the `pause`, instead of waiting out their claims one by one; then one of them
    /// tries for all. Leases that are held are renewed and released as ever. Default: none, each request asks. Each
    /// process counts for itself.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_claim::MemoryStore;
    /// use tower_lease_guard::LeaseGuardLayer;
    ///
    /// let layer = LeaseGuardLayer::builder(MemoryStore::new(), |req| Some(req.uri.path().to_owned()))
    ///     .circuit_breaker(5, Duration::from_secs(1))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn circuit_breaker(mut self, failures: u32, pause: Duration) -> Self {
        self.keeper = self.keeper.circuit_breaker(failures, pause);
        self
    }

    /// Where the heartbeats run. Default: [`RunOn::Thread`].
    pub fn run_on(mut self, run_on: RunOn) -> Self {
        self.keeper = self.keeper.run_on(run_on);
        self
    }

    /// Replaces the text of refusals. Keep the status: clients act on it. Default: RFC 9457 documents.
    pub fn on_refusal<F>(mut self, render: F) -> Self
    where
        F: Fn(&Refusal, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.refuse = Refuse::with(render);
        self
    }

    /// The layer.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a lease that cannot beat twice before its stop point, a zero where zero does not
    /// mean off, a malformed namespace, several resources on an engine that cannot lease them in one step,
    /// and [`RunOn::Task`] outside of a runtime. The text says what to write instead.
    pub fn build(self) -> Result<LeaseGuardLayer, ConfigError> {
        if self.wait == Some(Duration::ZERO) {
            return Err(ConfigError::new(
                "wait",
                "zero waits for nobody; leave it out to refuse at once",
            ));
        }
        if !(1..=Semaphore::MAX_PERMITS).contains(&self.max_waiters) {
            return Err(ConfigError::new(
                "max_waiters",
                format!(
                    "use 1 to {}; to let nobody wait, leave out `wait`",
                    Semaphore::MAX_PERMITS
                ),
            ));
        }
        let namespace = match self.namespace {
            None => Namespace::default(),
            Some(name) => Namespace::new(name)
                .map_err(|error| ConfigError::new("namespace", error.to_string()))?,
        };
        let mut terms = Terms::builder(self.lease)
            .renewal(self.renewal)
            .cooling(self.cooling)
            .min_hold(self.min_hold);
        if let Some(max_hold) = self.max_hold {
            terms = terms.max_hold(max_hold);
        }
        if let Some(budget) = self.stop_budget {
            terms = terms.stop_budget(budget);
        }
        let terms = terms.build()?;
        let keeper = self.keeper.build()?;
        let engine = keeper.store().dyn_capabilities();
        terms.check_against(&engine)?;
        if self.many && engine.multi_key != MultiKey::Atomic {
            return Err(ConfigError::new(
                "builder_many",
                format!(
                    "`{}` cannot lease any keys in one step: use one key per request, or another store",
                    engine.engine
                ),
            ));
        }
        Ok(LeaseGuardLayer::from_shared(Shared {
            id: Shared::new_id(),
            key: self.key,
            gate: self.gate,
            keeper,
            many: self.many,
            wait: self.wait,
            waiters: Semaphore::new(self.max_waiters),
            refuse: self.refuse,
            live: LiveLeases::default(),
            namespace,
            terms,
            label: self.label,
        }))
    }
}
