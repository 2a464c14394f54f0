//! The layer and what its services share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_claim::http::{Gate, RenderRefusal};
use tower_layer::Layer;

use super::answer::ShareRule;
use super::builder::SingleFlightLayerBuilder;
use super::learned::Learned;
use super::limit::Limit;
use super::observe::Observed;
use super::request::KeyRule;
use super::service::SingleFlightService;
use crate::cores::{Cores, Resolved};
use crate::counts::Counts;

/// Merges equal HTTP requests that are asked at the same moment: one call of the inner service, its
/// response for all.
///
/// Denies by default. A request **passes through** unless it is GET or HEAD, without `Authorization`,
/// `Proxy-Authorization`, `Cookie`, `X-Api-Key` and `X-Auth-Token` (unless
/// [named as identity](SingleFlightLayerBuilder::identity)), `Range`, `If-Range`, `Upgrade`,
/// `Expect`, `Cache-Control: no-store` and without a body.
/// `Cache-Control: no-cache` never joins a call that began earlier.
///
/// **Equal** are method, scheme, authority, original path and query byte for byte, `Accept`,
/// `Accept-Encoding`, `Accept-Language`, the conditional headers, and what the builder names.
///
/// When the head of the response is there it is checked again, for each follower: an answer with
/// `Set-Cookie`, `private`, `no-store`, `Vary: *`, status 101, 206, 401, 407, 416, 421, 425 or 429, an
/// event stream, one that varies by a header in which the follower differs, or one over the body limit is
/// **not shared**: all followers make their own calls at once, in parallel, and for ten seconds the key is
/// not merged again (or keyed by what it varies by). The leader keeps its own response in every case.
///
/// The layer value holds the flights: clones, and all services made from them, share; two layer values do
/// not. The services are always ready and ready a clone of the inner service for each call.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_single_flight::SingleFlightLayer;
///
/// let app: Router = Router::new()
///     .route("/catalogue/{id}", get(|| async { "slow to make" }))
///     .layer(SingleFlightLayer::new());
/// # let _ = app;
/// ```
#[derive(Clone)]
pub struct SingleFlightLayer {
    shared: Arc<Shared>,
}

/// What all services of one layer value share.
pub(super) struct Shared {
    pub(super) gate: Gate,
    pub(super) rule: KeyRule,
    pub(super) sharing: Arc<ShareRule>,
    pub(super) cores: Cores,
    pub(super) learned: Learned,
    pub(super) alone: Arc<Limit>,
    pub(super) observed: Arc<Observed>,
    pub(super) render: Option<RenderRefusal>,
}

impl SingleFlightLayer {
    /// A layer with the defaults of [`SingleFlightLayer::builder`].
    pub fn new() -> Self {
        Self::of(SingleFlightLayerBuilder::new().shared())
    }

    /// Chooses the settings.
    pub fn builder() -> SingleFlightLayerBuilder {
        SingleFlightLayerBuilder::new()
    }

    pub(super) fn of(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
        }
    }

    /// How many flights callers can join right now.
    pub fn flights(&self) -> usize {
        self.shared.cores.flights()
    }

    /// How many callers follow in those flights. Leaders are not counted.
    pub fn followers(&self) -> usize {
        self.shared.cores.followers()
    }

    /// What was merged so far, and what not.
    pub fn counts(&self) -> Counts {
        self.shared.cores.counters.read()
    }

    /// For a shutdown: from now on nothing is merged any more, so no further call becomes a task; waits
    /// until none runs in a task of its own. `false` when `timeout` passes first: the rest goes on.
    ///
    /// # Cancellation
    ///
    /// Nothing is merged any more; nothing else happens.
    pub async fn drain(&self, timeout: Duration) -> bool {
        let Cores { tasks, policy, .. } = &self.shared.cores;
        tasks.drain(&*policy.clock, timeout).await
    }
}

impl Default for SingleFlightLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for SingleFlightLayer {
    type Service = SingleFlightService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        SingleFlightService {
            inner,
            shared: Arc::clone(&self.shared),
            resolved: Resolved::default(),
        }
    }
}

impl fmt::Debug for SingleFlightLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlightLayer")
            .field("policy", &self.shared.cores.policy)
            .field("flights", &self.flights())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
