//! The layer for any service, with a key function.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tower_claim::ConfigError;
use tower_layer::Layer;
use tower_service::Service;

use crate::builder::{Policy, policy_setters};
use crate::call::{Call, Launch};
use crate::core::{Flown, Share};
use crate::cores::{Cores, Resolved};
use crate::counts::Counts;
use crate::error::FlightError;
use crate::oneshot::Oneshot;

type KeyFn<Req, K> = Arc<dyn Fn(&Req) -> Option<K> + Send + Sync>;

/// Merges equal calls of any [`Service`]. The key function says which calls are equal; `None` passes a
/// request through.
///
/// The response is cloned for each caller, the error becomes [`FlightError`]. The service is always ready:
/// a leader readies a clone of the inner service, followers never touch it, so limits below this layer
/// count calls, not callers. Clones of a layer value, and the services it makes, share their flights; two
/// layer values do not.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::convert::Infallible;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_single_flight::KeyedFlightLayer;
///
/// let squares = ServiceBuilder::new()
///     .layer(KeyedFlightLayer::new(|n: &u64| Some(*n)))
///     .service(service_fn(|n: u64| async move { Ok::<_, Infallible>(n * n) }));
/// assert_eq!(squares.oneshot(12).await.unwrap(), 144);
/// # });
/// ```
pub struct KeyedFlightLayer<Req, K> {
    key: KeyFn<Req, K>,
    cores: Arc<Cores>,
}

impl<Req, K> KeyedFlightLayer<Req, K> {
    /// A layer with the defaults of [`KeyedFlightLayer::builder`].
    pub fn new(key: impl Fn(&Req) -> Option<K> + Send + Sync + 'static) -> Self {
        Self {
            key: Arc::new(key),
            cores: Arc::new(Cores::new(Policy::default())),
        }
    }

    /// Chooses the settings.
    pub fn builder(
        key: impl Fn(&Req) -> Option<K> + Send + Sync + 'static,
    ) -> KeyedFlightBuilder<Req, K> {
        KeyedFlightBuilder {
            key: Arc::new(key),
            policy: Policy::default(),
        }
    }

    /// How many flights callers can join right now.
    pub fn flights(&self) -> usize {
        self.cores.flights()
    }

    /// How many callers follow in those flights. Leaders are not counted.
    pub fn followers(&self) -> usize {
        self.cores.followers()
    }

    /// What was merged so far, and what not.
    pub fn counts(&self) -> Counts {
        self.cores.counters.read()
    }

    /// For a shutdown: from now on nothing is merged any more, so no further call becomes a task; waits
    /// until none runs in a task of its own. `false` when `timeout` passes first: the rest goes on.
    ///
    /// # Cancellation
    ///
    /// Nothing is merged any more; nothing else happens.
    pub async fn drain(&self, timeout: Duration) -> bool {
        let Cores { tasks, policy, .. } = &*self.cores;
        tasks.drain(&*policy.clock, timeout).await
    }
}

/// Builds a [`KeyedFlightLayer`].
///
/// ```
/// use std::time::Duration;
/// use tower_single_flight::KeyedFlightLayer;
///
/// let layer = KeyedFlightLayer::builder(|request: &String| Some(request.clone()))
///     .flight_wait(Duration::from_secs(1))
///     .build()?;
/// # let _ = layer;
/// # Ok::<_, tower_claim::ConfigError>(())
/// ```
#[must_use = "call `build()`"]
pub struct KeyedFlightBuilder<Req, K> {
    key: KeyFn<Req, K>,
    policy: Policy,
}

impl<Req, K> KeyedFlightBuilder<Req, K> {
    policy_setters!();

    /// # Errors
    /// A zero `flight_age`, `flight_wait` or `max_waiters`; `shards` outside 1 to 65,536.
    pub fn build(self) -> Result<KeyedFlightLayer<Req, K>, ConfigError> {
        self.policy.check()?;
        Ok(KeyedFlightLayer {
            key: self.key,
            cores: Arc::new(Cores::new(self.policy)),
        })
    }
}

impl<S, Req, K> Layer<S> for KeyedFlightLayer<Req, K> {
    type Service = KeyedFlight<S, Req, K>;

    fn layer(&self, inner: S) -> Self::Service {
        KeyedFlight {
            inner,
            layer: self.clone(),
            resolved: Resolved::default(),
        }
    }
}

/// The service [`KeyedFlightLayer`] makes.
pub struct KeyedFlight<S, Req, K> {
    inner: S,
    layer: KeyedFlightLayer<Req, K>,
    resolved: Resolved,
}

impl<S, Req, K> Service<Req> for KeyedFlight<S, Req, K>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Response: Clone + Send + 'static,
    S::Error: Send + Sync + 'static,
    S::Future: Send + 'static,
    Req: Send + 'static,
    K: Hash + Eq + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = FlightError<S::Error>;
    type Future = KeyedFuture<S, Req, K>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Readiness is the leader's matter: a follower that had to get the inner service ready would wait
        // for, or use up, what only calls should.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let inner = self.inner.clone();
        let state = match (self.layer.key)(&request) {
            None => {
                self.layer.cores.counters.bypassed.add();
                State::Pass {
                    call: Oneshot::new(inner, request),
                }
            }
            Some(key) => {
                let share = || Share::Now(|response| response);
                let core = self.resolved.core(&self.layer.cores, share);
                State::Flying {
                    call: Call::new(core, key, ServiceLaunch(inner, request)),
                }
            }
        };
        KeyedFuture { state }
    }
}

struct ServiceLaunch<S, Req>(S, Req);

impl<S, Req> Launch for ServiceLaunch<S, Req>
where
    S: Service<Req> + Send + 'static,
    S::Future: Send + 'static,
    Req: Send + 'static,
{
    type Output = S::Response;
    type Error = S::Error;

    fn launch(self) -> impl Future<Output = Result<S::Response, S::Error>> + Send + 'static {
        let Self(service, request) = self;
        Oneshot::new(service, request)
    }
}

pin_project! {
    /// The future of [`KeyedFlight`]. Dropping it leaves the flight; the call goes on while others wait.
    pub struct KeyedFuture<S, Req, K>
    where
        S: Service<Req>,
    {
        #[pin]
        state: State<S, Req, K>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Req, K>
    where
        S: Service<Req>,
    {
        Pass { #[pin] call: Oneshot<S, Req> },
        Flying { call: Call<K, S::Response, S::Error, S::Response, ServiceLaunch<S, Req>> },
    }
}

impl<S, Req, K> Future for KeyedFuture<S, Req, K>
where
    S: Service<Req> + Send + 'static,
    S::Response: Clone + Send + 'static,
    S::Error: Send + Sync + 'static,
    S::Future: Send + 'static,
    Req: Send + 'static,
    K: Hash + Eq + Send + Sync + 'static,
{
    type Output = Result<S::Response, FlightError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Pass { call } => call
                .poll(cx)
                .map_err(|error| FlightError::Failed(Arc::new(error))),
            StateProj::Flying { call } => Pin::new(call).poll(cx).map_ok(Flown::into_inner),
        }
    }
}

impl<Req, K> Clone for KeyedFlightLayer<Req, K> {
    fn clone(&self) -> Self {
        Self {
            key: Arc::clone(&self.key),
            cores: Arc::clone(&self.cores),
        }
    }
}

impl<S: Clone, Req, K> Clone for KeyedFlight<S, Req, K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
            resolved: self.resolved.clone(),
        }
    }
}

impl<Req, K> fmt::Debug for KeyedFlightLayer<Req, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedFlightLayer")
            .field("policy", &self.cores.policy)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl<Req, K> fmt::Debug for KeyedFlightBuilder<Req, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedFlightBuilder")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl<S: fmt::Debug, Req, K> fmt::Debug for KeyedFlight<S, Req, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedFlight")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

impl<S: Service<Req>, Req, K> fmt::Debug for KeyedFuture<S, Req, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedFuture").finish_non_exhaustive()
    }
}
