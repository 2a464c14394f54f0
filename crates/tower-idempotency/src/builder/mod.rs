//! The settings of the layer.

mod build;
mod fingerprint;
mod keys;
mod lapse;
mod outage;
mod policy;
mod quota;
mod responses;
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Response};
use tower_claim::http::{Gate, KeySource, KeySyntax, RenderRefusal};
use tower_claim::transaction::BeginWithClaim;
use tower_claim::{
    Carry, Clock, Detached, DynClaimStore, Entropy, LapsePolicy, Namespace, OsEntropy, Refusal,
    Renewal, RunOn, SystemClock, Terms,
};

use crate::admit::OnBusy;
use crate::derived::Window;
use crate::entry::{EntryRules, Source};
use crate::existing::ExistingRows;
use crate::fields::RequestFields;
use crate::fingerprint::{BodyRules, Bound};
use crate::headers::HeaderRules;
use crate::layer::LayerId;
use crate::outcome::OutcomeRules;
use crate::quota::Limits;
use crate::reconcile::ReconcileBy;
use crate::redact::Redact;
use crate::rerender::OnNotKept;
use crate::seal::Ring;
use crate::store_down::OnStoreDown;
use crate::wait::WaitLimits;
use crate::weak::OnWeakKey;

/// `Idempotency-Key`.
const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MIB: usize = 1024 * 1024;

/// Builds an [`IdempotencyLayer`](crate::IdempotencyLayer). Made by
/// [`IdempotencyLayer::builder`](crate::IdempotencyLayer::builder). It is no layer itself: end with `build()?`.
///
/// ```
/// use std::time::Duration;
/// use tower_claim::MemoryStore;
/// use tower_idempotency::{IdempotencyLayer, OnBusy};
///
/// let layer = IdempotencyLayer::builder(MemoryStore::new())
///     .scope(|req| req.headers.get("x-tenant")?.to_str().ok().map(str::to_owned))
///     .require_scope() // else who has none, or one that is no ASCII, shares the keys of all such
///     .require_key()
///     .on_busy(OnBusy::Wait(Duration::from_secs(5)))
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_claim::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct IdempotencyBuilder {
    store: Arc<dyn DynClaimStore>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    run_on: RunOn,
    entry: EntryRules,
    namespace: Option<String>,
    name: Option<String>,
    header: HeaderName,
    syntax: KeySyntax,
    source: Option<Source>,
    window: Option<Window>,
    one_tenant: bool,
    body_rules: BodyRules,
    bound_fields: Option<RequestFields>,
    stream_uploads: Option<u64>,
    first_payload_wins: bool,
    fingerprint_secret: Option<[u8; 32]>,
    lease: Duration,
    renewal: Renewal,
    max_hold: Option<Duration>,
    on_lapse: LapsePolicy,
    unfinished_keep: Duration,
    trust_forgetful_store: bool,
    /// As it was set.
    retention: Option<Duration>,
    quota: Limits,
    on_busy: OnBusy,
    on_store_down: OnStoreDown,
    circuit: Option<(u32, Duration)>,
    waits: WaitLimits,
    max_in_flight: usize,
    max_request_body: usize,
    max_response_body: usize,
    headers: HeaderRules,
    outcome: OutcomeRules,
    tell_status: bool,
    stands_down: bool,
    redact: Redact,
    seal: Option<Ring>,
    on_not_kept: Option<OnNotKept>,
    reconcile: Option<ReconcileBy>,
    inside: Option<Arc<dyn BeginWithClaim>>,
    existing: ExistingRows,
    render: Option<RenderRefusal>,
    policy_at: Option<String>,
    detached: Detached,
}

impl IdempotencyBuilder {
    pub(crate) fn new(store: Arc<dyn DynClaimStore>) -> Self {
        Self {
            store,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            run_on: RunOn::Thread,
            entry: EntryRules {
                layer: LayerId::next(),
                gate: Gate::new(),
                source: Source::Head(KeySource::header(HEADER, KeySyntax::Lenient)),
                on_weak_key: OnWeakKey::Warn,
                require_key: false,
                scope: None,
                require_scope: false,
                tenants: None,
                namespace: Namespace::default(),
                bound: Bound::Payload(BodyRules::default()),
            },
            namespace: None,
            name: None,
            header: HEADER,
            syntax: KeySyntax::Lenient,
            source: None,
            window: None,
            one_tenant: false,
            body_rules: BodyRules::default(),
            bound_fields: None,
            stream_uploads: None,
            first_payload_wins: false,
            fingerprint_secret: None,
            lease: Terms::default().lease(),
            renewal: Renewal::Always,
            max_hold: None,
            on_lapse: LapsePolicy::TakeOver,
            unfinished_keep: DAY,
            trust_forgetful_store: false,
            retention: None,
            quota: Limits::NONE,
            on_busy: OnBusy::Reject,
            on_store_down: OnStoreDown::Refuse,
            circuit: None,
            waits: WaitLimits {
                in_all: 10_000,
                per_key: 1_000,
                bytes: 64 * MIB,
            },
            max_in_flight: 10_000,
            max_request_body: MIB,
            max_response_body: MIB,
            headers: HeaderRules::default(),
            outcome: OutcomeRules::default(),
            tell_status: false,
            stands_down: false,
            redact: Redact::default(),
            seal: None,
            on_not_kept: None,
            reconcile: None,
            inside: None,
            existing: ExistingRows::default(),
            render: None,
            policy_at: None,
            detached: Detached::new(),
        }
    }

    /// Keeps the keys of two applications on one store apart: 1 to 64 of `A-Z a-z 0-9 _ -`. Default:
    /// `default`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// What the layer is called in metrics and events, their label `layer` (features `metrics`, `tracing`). Two layers
    /// of one name are told together, and their gauges overwrite each other. Default: the
    /// [namespace](Self::namespace).
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let orders = IdempotencyLayer::builder(MemoryStore::new()).named("orders").build()?;
    /// # let _ = orders;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Limits the layer to methods, routes and a predicate, and holds the switch that turns it off, or to
    /// observe-only, while it runs. Default: POST, PATCH, PUT and DELETE on every route; a gate that names no
    /// methods stands for these four.
    ///
    /// Off, in observe-only mode, and where the predicate leaves it out, a request with a key runs each time it is sent,
    /// and its handler need not know: it finds an [`IdempotentRun`](crate::IdempotentRun), which tells that it
    /// [is not guarded](crate::IdempotentRun::is_guarded), and its transaction is committed where it answers below 400. Nothing
    /// is read of a body, nothing refused, nothing kept. In observe-only mode [`Counts`](crate::Counts) tell how many would
    /// have been guarded; where the key is in the body, all requests count that may have one.
    ///
    /// ```
    /// use http::Method;
    /// use tower_claim::MemoryStore;
    /// use tower_claim::http::{Gate, Mode, Switch};
    /// use tower_idempotency::IdempotencyLayer;
    ///
    /// let switch = Switch::new(Mode::Observe);
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .gate(Gate::new().methods([Method::POST]).switch(switch.clone()))
    ///     .build()?;
    /// switch.set(Mode::On);
    /// # let _ = layer;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn gate(mut self, gate: Gate) -> Self {
        self.entry.gate = gate;
        self
    }

    /// How long a run may be silent before its key is open to a takeover; renewed at a third of it while
    /// the handler runs. At least 100 ms with renewal, 10 ms without. Default: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Whether the claim of a running handler is renewed. Default: [`Renewal::Always`]. Without renewal
    /// the handler runs on past its lease, and a repeat may take over.
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = renewal;
        self
    }

    /// The longest time one run is renewed: a handler that hangs for ever keeps its key no longer.
    /// Default: that of [`Terms`], 10 minutes.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// How long an outcome is kept and replayed. Default: 24 hours; with a [key window](Self::key_window) that is longer
    /// with its overlap, as long as both. May be shorter than the lease, not than these two: the key would be forgotten
    /// while it still means the same.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// What a repeat does while the first run is going. Default: [`OnBusy::Reject`].
    pub fn on_busy(mut self, on_busy: OnBusy) -> Self {
        self.on_busy = on_busy;
        self
    }

    /// How many repeats wait at once, in all ([`OnBusy::Wait`]); one more is refused like under
    /// [`OnBusy::Reject`]. Default: 10,000.
    pub fn max_waiters(mut self, limit: usize) -> Self {
        self.waits.in_all = limit;
        self
    }

    /// How many repeats of one key wait at once ([`OnBusy::Wait`]); one more is refused like under
    /// [`OnBusy::Reject`]. A client that goes mad under one key does not take the places of the others. When its run
    /// ends without an outcome these do not rush to the store: one of them asks, for all. Default: 1,000.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, OnBusy};
    ///
    /// let layer = IdempotencyLayer::builder(MemoryStore::new())
    ///     .on_busy(OnBusy::Wait(Duration::from_secs(5)))
    ///     .max_waiters(2_000)
    ///     .max_waiters_per_key(20)
    ///     .max_waiting_bytes(16 << 20)
    ///     .build()?;
    /// assert_eq!(layer.waiting(), 0);
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn max_waiters_per_key(mut self, limit: usize) -> Self {
        self.waits.per_key = limit;
        self
    }

    /// How many bytes the bodies of all repeats that wait may hold together ([`OnBusy::Wait`]); one more is
    /// refused like under [`OnBusy::Reject`]. A body that streams is not in memory and does not count. Default:
    /// 64 MiB.
    pub fn max_waiting_bytes(mut self, bytes: usize) -> Self {
        self.waits.bytes = bytes;
        self
    }

    /// How many handlers run detached at once, in all; one more is refused (503 `overloaded`). Limits and
    /// timeouts outside of this layer do not bound them: a caller that is gone frees its place there while
    /// its handler runs on. Default: 10,000.
    ///
    /// A handler that hangs keeps its place until it ends, also when its key is free again after
    /// [`max_hold`](Self::max_hold): it still has its memory and its connections, and a limit that no longer
    /// counts it would bound nothing. Put a timeout *inside* of this layer, around the handler: what it drops
    /// is an error, which frees the key and the place.
    pub fn max_in_flight(mut self, limit: usize) -> Self {
        self.max_in_flight = limit;
        self
    }

    /// The largest request body that is read for the fingerprint, in bytes; a larger one is refused (413
    /// `body-too-large`). Replaces the host's own limit, which this layer bypasses. Default: 1 MiB.
    pub fn max_request_body(mut self, bytes: usize) -> Self {
        self.max_request_body = bytes;
        self
    }

    /// Replaces the text of refusals. Default: problem documents (RFC 9457), gRPC trailers where the
    /// request is gRPC.
    pub fn on_refusal(
        mut self,
        render: impl Fn(&Refusal, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.render = Some(Arc::new(render));
        self
    }

    /// Takes something of the caller's task, such as a task-local, along to the handler, which runs in a
    /// task of its own. Default: the tracing span only (feature `tracing`).
    pub fn carry(mut self, carry: impl Carry) -> Self {
        self.detached = self.detached.carrying(carry);
        self
    }

    /// The clock. Default: [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where nonces come from. Default: [`OsEntropy`].
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Where the keeper runs. Default: [`RunOn::Thread`]; [`RunOn::Task`] is for tests in paused time.
    pub fn run_on(mut self, run_on: RunOn) -> Self {
        self.run_on = run_on;
        self
    }
}

impl fmt::Debug for IdempotencyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyBuilder")
            .field("store", &self.store)
            .field("entry", &self.entry)
            .field("lease", &self.lease)
            .field("retention", &self.retention)
            .field("on_busy", &self.on_busy)
            .finish_non_exhaustive()
    }
}
