//! A store, a clock that a test can pause, and lease layers over them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceExt};
use tower_claim::testing::{FaultStore, Faults};
use tower_claim::{
    ClaimStore, Key, MemoryStore, Namespace, RunOn, TokioClock, Use, store::RecordView,
};
use tower_lease_guard::lease::LeaseBody;
use tower_lease_guard::{Lease, LeaseGuardBuilder, LeaseGuardLayer};

use crate::support::*;

pub const LEASE: Duration = Duration::from_secs(10);
pub const SEC: Duration = Duration::from_secs(1);

pub type Store = FaultStore<MemoryStore>;

#[derive(Clone)]
pub struct World {
    pub store: Store,
    pub faults: Faults,
    pub clock: Arc<TokioClock>,
}

pub fn account(req: &Parts) -> Option<String> {
    req.uri.path().strip_prefix("/accounts/").map(str::to_owned)
}

pub fn accounts(req: &Parts) -> Option<Vec<String>> {
    let names = req.uri.path().strip_prefix("/accounts/")?;
    Some(names.split('+').map(str::to_owned).collect())
}

impl World {
    /// To be made inside of a paused runtime.
    pub fn new() -> Self {
        let clock = Arc::new(TokioClock::new());
        let memory = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let store = FaultStore::with_clock(memory, clock.clone());
        Self {
            faults: store.faults(),
            store,
            clock,
        }
    }

    pub fn builder(&self) -> LeaseGuardBuilder {
        LeaseGuardLayer::builder(self.store.clone(), account)
            .lease(LEASE)
            .clock(self.clock.clone())
            .run_on(RunOn::Task)
    }

    pub fn builder_many(&self) -> LeaseGuardBuilder {
        LeaseGuardLayer::builder_many(self.store.clone(), accounts)
            .lease(LEASE)
            .clock(self.clock.clone())
            .run_on(RunOn::Task)
    }

    pub fn layer(&self) -> LeaseGuardLayer {
        self.builder().build().unwrap()
    }

    pub async fn record(&self, account: &str) -> Option<RecordView> {
        let key = Key::builder(Use::Lease, &Namespace::default())
            .part(account)
            .build();
        self.store.inner().peek(key).await.unwrap()
    }
}

pub async fn ok(_: Request<()>) -> Result<Response<TestBody>, Infallible> {
    Ok(Response::new(full("ran")))
}

pub async fn call<S>(service: &S, path: &str) -> Response<LeaseBody<TestBody>>
where
    S: Service<Request<()>, Response = Response<LeaseBody<TestBody>>, Error = Infallible> + Clone,
{
    // A rule that is broken must fail its test, not hang it. An hour of paused time passes at once.
    let answered = service.clone().oneshot(request(path));
    let answered = tokio::time::timeout(360 * LEASE, answered).await;
    answered.expect("no answer").unwrap()
}

/// Asks for account `a` by a handler that does nothing.
pub async fn ask(layer: &LeaseGuardLayer) -> (u16, String) {
    refusal(call(&layer.layer(tower::service_fn(ok)), "/accounts/a").await).await
}

pub fn lease_of(request: &Request<()>) -> Lease {
    request.extensions().get::<Lease>().unwrap().clone()
}

pub fn ran() -> (u16, String) {
    (200, "no refusal: ran".to_owned())
}

pub fn refused(status: u16, what: &str) -> (u16, String) {
    (status, what.to_owned())
}

/// Lets every other task run until nothing is left to do.
pub async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub type Answer = Result<Response<TestBody>, Infallible>;

/// A handler that says when it is inside and stays there until it is let go.
pub fn at_gate(
    inside: &Arc<Notify>,
    gate: &Arc<Notify>,
) -> impl Service<Request<()>, Response = Response<TestBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let (inside, gate) = (inside.clone(), gate.clone());
    tower::service_fn(move |_: Request<()>| {
        let (inside, gate) = (inside.clone(), gate.clone());
        async move {
            inside.notify_one();
            gate.notified().await;
            Ok(Response::new(full("ran")))
        }
    })
}

/// A handler that never ends, and says when it is gone.
pub fn hangs(
    log: &Log,
) -> impl Service<Request<()>, Response = Response<TestBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let log = log.clone();
    tower::service_fn(move |_: Request<()>| {
        let gone = OnDrop(log.clone(), "work gone");
        async move {
            let _gone = gone;
            std::future::pending::<Answer>().await
        }
    })
}
