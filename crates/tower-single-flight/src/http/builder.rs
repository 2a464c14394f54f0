//! The settings of the HTTP layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Response, request, response};
use tower_claim::http::{Gate, RenderRefusal};
use tower_claim::{ConfigError, Refusal};

use super::answer::ShareRule;
use super::layer::{Shared, SingleFlightLayer};
use super::learned::Learned;
use super::limit::Limit;
use super::observe::Observed;
use super::request::KeyRule;
use crate::builder::{Policy, policy_setters};
use crate::cores::Cores;

/// Builds a [`SingleFlightLayer`].
///
/// ```
/// use std::time::Duration;
/// use http::{HeaderName, header};
/// use tower_claim::http::{Gate, Switch};
/// use tower_single_flight::SingleFlightLayer;
///
/// let switch = Switch::default();
/// let layer = SingleFlightLayer::builder()
///     .gate(Gate::new().routes(["/catalogue/*"]).switch(switch.clone()))
///     .key_header(HeaderName::from_static("x-tenant"))
///     .identity(header::AUTHORIZATION)
///     .share_if(|response| response.status.is_success())
///     .max_body(64 * 1024)
///     .flight_wait(Duration::from_secs(2))
///     .build()?;
/// # let _ = layer;
/// # Ok::<_, tower_claim::ConfigError>(())
/// ```
#[must_use = "call `build()`"]
pub struct SingleFlightLayerBuilder {
    policy: Policy,
    gate: Gate,
    rule: KeyRule,
    sharing: ShareRule,
    remember: Duration,
    go_alone: usize,
    render: Option<RenderRefusal>,
}

impl SingleFlightLayerBuilder {
    pub(super) fn new() -> Self {
        let policy = Policy::default();
        let sharing = ShareRule {
            max_body: 256 * 1024,
            sized_wait: policy.wait,
            unsized_wait: Duration::from_secs(1),
            predicate: None,
            extensions: Vec::new(),
            clock: Arc::clone(&policy.clock),
        };
        Self {
            policy,
            gate: Gate::new(),
            rule: KeyRule::default(),
            sharing,
            remember: Duration::from_secs(10),
            go_alone: 1_024,
            render: None,
        }
    }

    policy_setters!();

    /// Limits the layer to methods, routes and a predicate, and turns it off at run time. Default: all
    /// that may be merged, on. In observe mode everything
    /// passes through, and [`counts`](SingleFlightLayer::counts) tells what would have been merged.
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Puts a request header into the key: requests with different values are never merged. A header that
    /// changes the response belongs here. Credentials still pass through: see
    /// [`identity`](Self::identity). Default: none beside the usual ones.
    pub fn key_header(mut self, name: HeaderName) -> Self {
        self.rule.headers.push(name);
        self
    }

    /// Puts a credential (`Authorization`, `Proxy-Authorization`, `Cookie`, `X-Api-Key`, `X-Auth-Token`) into the
    /// key, so that requests with it are merged among those with the same value instead of passing through. Default: none.
    pub fn identity(mut self, name: HeaderName) -> Self {
        self.rule.identity.push(name);
        self
    }

    /// Leaves scheme and authority (`Host`) out of the key, for a service that answers the same under all
    /// its names. Default: they are in the key.
    pub fn without_authority(mut self) -> Self {
        self.rule.without_authority = true;
        self
    }

    /// Replaces the key's scheme, authority, path, query and usual headers. `None` passes a request
    /// through. Method, [key headers](Self::key_header) and [identities](Self::identity) stay in the key,
    /// and what passes through by default still does. Name here whatever tells users apart that no header
    /// shows, such as a client certificate in the extensions.
    ///
    /// The raw path is safe here: two spellings of one name (`7`, `%37`) are two flights, which costs a call
    /// and shares nothing that is not the same. Where they shall be one flight, read the name by
    /// [`path_segment`](tower_claim::http::path_segment).
    ///
    /// ```
    /// use tower_single_flight::SingleFlightLayer;
    ///
    /// // The order of query parameters does not matter to this service.
    /// let layer = SingleFlightLayer::builder()
    ///     .key(|request| {
    ///         let mut pairs: Vec<_> = request.uri.query().unwrap_or("").split('&').collect();
    ///         pairs.sort_unstable();
    ///         Some(format!("{}?{}", request.uri.path(), pairs.join("&")))
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_claim::ConfigError>(())
    /// ```
    pub fn key<F, K>(mut self, key: F) -> Self
    where
        F: Fn(&request::Parts) -> Option<K> + Send + Sync + 'static,
        K: Into<Vec<u8>>,
    {
        self.rule.own = Some(Arc::new(move |parts| key(parts).map(Into::into)));
        self
    }

    /// A further condition on responses that could be shared. Default: none.
    pub fn share_if(
        mut self,
        predicate: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.sharing.predicate = Some(Arc::new(predicate));
        self
    }

    /// The longest body, in bytes, that is collected for followers. Default 256 KiB. Over it they go
    /// alone, and the leader's response streams on.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.sharing.max_body = bytes;
        self
    }

    /// How long a body of unknown length is collected, since it may be endless. Default 1 s. After it
    /// followers go alone, and the leader's response streams on. Bodies of known length have as long as a
    /// follower waits.
    pub fn unsized_body_wait(mut self, wait: Duration) -> Self {
        self.sharing.unsized_wait = wait;
        self
    }

    /// How many followers of unshareable answers may make their own call at the same time; more are
    /// refused `overloaded`. Default 1,024.
    pub fn go_alone_limit(mut self, calls: usize) -> Self {
        self.go_alone = calls;
        self
    }

    /// How long it is remembered that a key's answers cannot be shared, or by which headers they vary.
    /// Default 10 s; zero remembers nothing. 10,000 keys at most.
    pub fn remember(mut self, keep: Duration) -> Self {
        self.remember = keep;
        self
    }

    /// Gives followers a copy of this response extension. Default: the leader alone gets extensions.
    pub fn copy_extension<T: Clone + Send + Sync + 'static>(mut self) -> Self {
        self.sharing.extensions.push(Arc::new(|from, to| {
            if let Some(value) = from.get::<T>() {
                to.insert(value.clone());
            }
        }));
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

    pub(super) fn shared(mut self) -> Shared {
        self.sharing.clock = Arc::clone(&self.policy.clock);
        self.sharing.sized_wait = self.policy.wait;
        let Policy {
            shards, max_age, ..
        } = self.policy;
        let cores = Cores::new(self.policy);
        Shared {
            observed: Arc::new(Observed::new(shards, max_age, Arc::clone(&cores.counters))),
            gate: self.gate,
            rule: self.rule,
            sharing: Arc::new(self.sharing),
            cores,
            learned: Learned::new(self.remember),
            alone: Arc::new(Limit::new(self.go_alone)),
            render: self.render,
        }
    }

    /// # Errors
    /// A zero `flight_age`, `flight_wait`, `max_waiters` or `unsized_body_wait`; `shards` outside 1 to
    /// 65,536.
    pub fn build(self) -> Result<SingleFlightLayer, ConfigError> {
        self.policy.check()?;
        if self.sharing.unsized_wait.is_zero() {
            return Err(ConfigError::new(
                "unsized_body_wait",
                "a body cannot be collected in no time; use a duration above zero",
            ));
        }
        Ok(SingleFlightLayer::of(self.shared()))
    }
}

impl fmt::Debug for SingleFlightLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlightLayerBuilder")
            .field("policy", &self.policy)
            .field("gate", &self.gate)
            .field("max_body", &self.sharing.max_body)
            .finish_non_exhaustive()
    }
}
