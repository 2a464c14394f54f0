//! Configuration, and what all services of one layer value share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use http::request::Parts;
use tokio::sync::Semaphore;
use tower_claim::http::Gate;
use tower_claim::{ClaimMany, ClaimStore, Keeper, Key, Namespace, Terms, Use};
use tower_layer::Layer;

use super::builder::LeaseGuardBuilder;
use super::live::LiveLeases;
use super::service::LeaseGuard;
use crate::keys::{IntoLeaseKey, IntoLeaseKeys, KeyFn};
use crate::refuse::Refuse;

pub(super) const LABEL: &str = "lease";
pub(super) const MAX_WAITERS: usize = 10_000;

/// Takes a lease around each request, on the resources that a key function names; requests that it names
/// none for pass.
///
/// Keep the layer value and clone it: its keeper beats for all leases together. The same value met twice by
/// one request passes the second time. A copy of the request (a retry made between the two) is a call of
/// its own, and is refused `leased-by-caller` while the first stands.
#[derive(Clone)]
pub struct LeaseGuardLayer {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    /// Tells layer values apart.
    pub(super) id: u64,
    pub(super) key: KeyFn,
    pub(super) gate: Gate,
    pub(super) keeper: Keeper,
    pub(super) many: bool,
    pub(super) wait: Option<Duration>,
    /// A place for each request that waits.
    pub(super) waiters: Semaphore,
    pub(super) refuse: Refuse,
    pub(super) live: LiveLeases,
    pub(super) namespace: Namespace,
    pub(super) terms: Terms,
    pub(super) label: Arc<str>,
}

impl Shared {
    pub(super) fn key_of(&self, resource: &str) -> Key {
        Key::builder(Use::Lease, &self.namespace)
            .part(resource)
            .build()
    }

    pub(super) fn terms_for(&self, key: Key) -> Terms {
        self.terms
            .labelled(format!("{} {}", self.label, key.prefix()))
    }

    pub(super) fn new_id() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }
}

impl LeaseGuardLayer {
    /// A layer with the default settings of [`LeaseGuardBuilder`]. `key` names the resource that a request
    /// works on, or `None`. Names from the path are read by
    /// [`path_segment`](tower_claim::http::path_segment): in the raw path `7` and `%37` are two texts, and would be two leases
    /// on one resource.
    pub fn new<F, K>(store: impl ClaimStore, key: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoLeaseKey,
    {
        Self::from_shared(Shared {
            id: Shared::new_id(),
            key: KeyFn::one(key),
            gate: Gate::new(),
            keeper: Keeper::new(store),
            many: false,
            wait: None,
            waiters: Semaphore::new(MAX_WAITERS),
            refuse: Refuse::default(),
            live: LiveLeases::default(),
            namespace: Namespace::default(),
            terms: Terms::default(),
            label: Arc::from(LABEL),
        })
    }

    pub(super) fn from_shared(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
        }
    }

    /// A layer with settings of its own, one resource per request.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_claim::MemoryStore;
    /// use tower_claim::http::path_segment;
    /// use tower_lease_guard::{LeaseGuardLayer, Renewal};
    ///
    /// let account = path_segment("/accounts/{id}")?; // decoded: see `new`
    /// let leases = LeaseGuardLayer::builder(MemoryStore::new(), account)
    ///     .lease(Duration::from_secs(10))
    ///     .renewal(Renewal::Progress { stall_after: Duration::from_secs(30) })
    ///     .wait(Duration::from_secs(2))
    ///     .namespace("bank")
    ///     .build()?;
    /// # drop::<LeaseGuardLayer>(leases);
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn builder<F, K>(store: impl ClaimStore, key: F) -> LeaseGuardBuilder
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoLeaseKey,
    {
        LeaseGuardBuilder::new(Keeper::builder(store), false, KeyFn::one(key))
    }

    /// A layer with settings of its own, several resources per request: all are leased in one step or none
    /// is, so requests that name them in different orders cannot block each other for ever.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_claim::http::path_segment;
    /// use tower_lease_guard::LeaseGuardLayer;
    ///
    /// let from = path_segment("/transfer/{from}/{_}")?; // decoded: see `new`
    /// let to = path_segment("/transfer/{_}/{to}")?;
    /// let leases = LeaseGuardLayer::builder_many(MemoryStore::new(), move |req| {
    ///     Some(vec![from(req)?, to(req)?])
    /// })
    /// .build()?;
    /// # drop::<LeaseGuardLayer>(leases);
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn builder_many<F, K>(store: impl ClaimMany, keys: F) -> LeaseGuardBuilder
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoLeaseKeys,
    {
        LeaseGuardBuilder::new(Keeper::builder_many(store), true, KeyFn::many(keys))
    }

    /// For a shutdown: from now on new leases are refused 503 `shutting-down`; waits until the last lease
    /// is over and the store has been told, or until `timeout` has passed. True when nothing is left; what
    /// is left lapses.
    ///
    /// Dropping the future leaves the layer closed.
    pub async fn drain(&self, timeout: Duration) -> bool {
        self.shared.live.close();
        let keeper = &self.shared.keeper;
        let clock = keeper.clock();
        let until = clock.now() + timeout;
        let none_left = std::pin::pin!(self.shared.live.none_left());
        match select(none_left, clock.sleep_until(until)).await {
            Either::Left(_) => keeper.drain(until.saturating_since(clock.now())).await,
            Either::Right(_) => false,
        }
    }
}

impl<S> Layer<S> for LeaseGuardLayer {
    type Service = LeaseGuard<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LeaseGuard::new(inner, self.shared.clone())
    }
}

impl fmt::Debug for LeaseGuardLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseGuardLayer")
            .field("keeper", &self.shared.keeper)
            .field("terms", &self.shared.terms)
            .field("wait", &self.shared.wait)
            .field("gate", &self.shared.gate)
            .field("namespace", &self.shared.namespace)
            .field("refuse", &self.shared.refuse)
            .finish_non_exhaustive()
    }
}
