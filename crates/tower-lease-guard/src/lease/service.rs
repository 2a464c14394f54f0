//! The service.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower_claim::Refusal;
use tower_claim::http::{Mode, is_grpc};
use tower_service::Service;

use super::acquire::{Wanted, leased_by_caller};
use super::body::LeaseBody;
use super::future::ResponseFuture;
use super::held::{Meeting, meet};
use super::layer::Shared;
use super::run::{Call, run};
use crate::BoxError;
use crate::keys::Resources;
use crate::refuse::key_invalid;
use crate::report::{self, Board};

/// Takes a lease around each call. Made by [`LeaseGuardLayer`](super::LeaseGuardLayer).
#[derive(Clone)]
pub struct LeaseGuard<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> LeaseGuard<S> {
    pub(super) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for LeaseGuard<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<LeaseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let mode = self.shared.gate.mode(&parts);
        let asked = match mode {
            Mode::Off => Asked::Pass,
            _ => self.shared.asked(&parts),
        };
        match asked {
            Asked::Refused(refusal) if mode == Mode::Observe => {
                report::would_refuse("lease", &refusal);
                ResponseFuture::pass(self.inner.call(Request::from_parts(parts, body)))
            }
            Asked::Refused(refusal) => {
                Board::of(&parts.extensions).refused("lease", &refusal);
                let grpc = is_grpc(&parts.headers);
                ResponseFuture::refused(self.shared.refused(&refusal, grpc))
            }
            Asked::Pass => ResponseFuture::pass(self.inner.call(Request::from_parts(parts, body))),
            Asked::Lease(wanted) => {
                // The service that was polled ready is the one to call; the clone left in its place has
                // not been (tower-rs/tower #547).
                let fresh = self.inner.clone();
                let ready = mem::replace(&mut self.inner, fresh);
                let call = Call {
                    shared: self.shared.clone(),
                    ready,
                    request: Request::from_parts(parts, body),
                    wanted,
                    enforce: mode == Mode::On,
                };
                ResponseFuture::leased(Box::pin(run(call)))
            }
        }
    }
}

enum Asked {
    Pass,
    Refused(Refusal),
    Lease(Wanted),
}

impl Shared {
    fn asked(&self, parts: &Parts) -> Asked {
        let resources = match self.key.resources(parts) {
            Resources::None => return Asked::Pass,
            Resources::Invalid => return Asked::Refused(key_invalid()),
            Resources::Some(resources) => resources,
        };
        let mut keys: Vec<_> = resources.iter().map(|name| self.key_of(name)).collect();
        keys.sort_unstable();
        match meet(self.id, &keys, &parts.extensions) {
            Meeting::Free => Asked::Lease(Wanted { resources, keys }),
            Meeting::SameLayer => Asked::Pass,
            Meeting::HeldByCaller => Asked::Refused(leased_by_caller()),
        }
    }

    pub(super) fn refused<R>(&self, refusal: &Refusal, grpc: bool) -> Response<LeaseBody<R>> {
        let response = self.refuse.respond(refusal, grpc);
        response.map(|body: Bytes| LeaseBody::refused(body))
    }
}

impl<S: fmt::Debug> fmt::Debug for LeaseGuard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseGuard")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
