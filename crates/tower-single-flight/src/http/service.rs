//! The service: decides what becomes of a request.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower_claim::http::Mode;
use tower_service::Service;

use super::aloft::is_aloft;
use super::answer::{ForOthers, Slot};
use super::body::FlightBody;
use super::future::{HttpCore, ResponseFuture};
use super::launch::FlightLaunch;
use super::layer::Shared;
use super::learned::Lesson;
use super::observe::Watch;
use super::present::Headers;
use super::request::{KeyRule, Sharing, is_safe};
use crate::call::Call;
use crate::core::Share;
use crate::cores::Resolved;

/// The service [`SingleFlightLayer`](crate::SingleFlightLayer) makes. Always ready.
#[derive(Clone)]
pub struct SingleFlightService<S> {
    pub(super) inner: S,
    pub(super) shared: Arc<Shared>,
    pub(super) resolved: Resolved,
}

impl<S, B, R> Service<Request<B>> for SingleFlightService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Send,
{
    type Response = Response<FlightBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Readiness is the leader's matter, which readies a clone: a follower that had to get the inner
        // service ready would wait for, or use up, what only calls should.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        if !is_safe(request.method()) || !request.body().is_end_stream() {
            self.shared.cores.counters.bypassed.add();
            return ResponseFuture::pass(inner, request);
        }
        let (parts, body) = request.into_parts();
        match self.shared.plan(&parts) {
            Plan::Pass => {
                self.shared.cores.counters.bypassed.add();
                ResponseFuture::pass(inner, Request::from_parts(parts, body))
            }
            Plan::Watch(watch) => {
                ResponseFuture::watched(inner, Request::from_parts(parts, body), watch)
            }
            Plan::Fly { key, fresh } => {
                let launch = Box::new(FlightLaunch {
                    service: inner,
                    parts,
                    body,
                    shared: Arc::clone(&self.shared),
                });
                let core = self.core::<R, S::Error>();
                ResponseFuture::fly(Call::new(core, key, launch).fresh(fresh))
            }
        }
    }
}

enum Plan {
    Pass,
    /// Observe mode: it would fly.
    Watch(Option<Watch>),
    Fly {
        key: Vec<u8>,
        fresh: bool,
    },
}

impl Shared {
    fn plan(self: &Arc<Self>, parts: &Parts) -> Plan {
        let present = Headers::of(&parts.headers);
        let sharing = self.rule.sharing(&parts.headers, present);
        let mode = self.gate.mode(parts);
        if sharing == Sharing::Never
            || !matches!(mode, Mode::On | Mode::Observe)
            || is_aloft(&parts.extensions, self)
        {
            return Plan::Pass;
        }
        let Some(mut key) = self.rule.key(parts, present) else {
            return Plan::Pass;
        };
        match self.learned.recall(&key, || self.sharing.clock.now()) {
            Some(Lesson::Alone) => return Plan::Pass,
            Some(Lesson::Vary(names)) => KeyRule::extend(&mut key, &parts.headers, &names),
            None => {}
        }
        let fresh = sharing == Sharing::LeadOnly;
        if mode == Mode::Observe {
            let now = self.sharing.clock.now();
            return Plan::Watch(self.observed.watch(key, fresh, now));
        }
        Plan::Fly { key, fresh }
    }
}

impl<S> SingleFlightService<S> {
    fn core<R, E>(&self) -> Arc<HttpCore<R, E>>
    where
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Send,
        E: Send + 'static,
    {
        let share = || {
            // Not the whole of what is shared, which holds this.
            let rule = Arc::clone(&self.shared.sharing);
            let counters = Arc::clone(&self.shared.cores.counters);
            Share::Later(Arc::new(move |led| {
                let (rule, counters) = (Arc::clone(&rule), Arc::clone(&counters));
                Box::pin(async move {
                    let answer = rule.share(led).await;
                    if let ForOthers::Alone = answer.for_others {
                        counters.unshareable.add();
                    }
                    answer
                }) as _
            }))
        };
        self.resolved
            .core::<Vec<u8>, _, Slot<E>, _>(&self.shared.cores, share)
    }
}

impl<S: fmt::Debug> fmt::Debug for SingleFlightService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlightService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
