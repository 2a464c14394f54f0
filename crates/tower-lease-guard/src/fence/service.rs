//! The service.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower_claim::http::{Mode, is_grpc};
use tower_claim::{Code, Refusal};
use tower_service::Service;

use super::body::FenceBody;
use super::drain::Turn;
use super::error::FenceError;
use super::future::ResponseFuture;
use super::layer::{MissingToken, Shared};
use super::registry::Ticket;
use crate::keys::Resources;
use crate::refuse::key_invalid;
use crate::report;
use crate::token::{FencingToken, InvalidFencingToken};

/// Lets a request in only with a fencing token that is new enough. Made by
/// [`FenceLayer`](super::FenceLayer).
#[derive(Clone)]
pub struct Fence<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Fence<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for Fence<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    type Response = Response<FenceBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let mode = self.shared.gate.mode(&parts);
        let judged = match mode {
            Mode::Off => Judged::Pass,
            _ => self.shared.judge(&parts),
        };
        match judged {
            Judged::Refused(refusal) if mode == Mode::Observe => {
                report::would_refuse("fence", &refusal);
                ResponseFuture::pass(self.inner.call(Request::from_parts(parts, body)))
            }
            Judged::Token(_) if mode == Mode::Observe => {
                ResponseFuture::pass(self.inner.call(Request::from_parts(parts, body)))
            }
            Judged::Pass => ResponseFuture::pass(self.inner.call(Request::from_parts(parts, body))),
            Judged::Refused(refusal) => {
                report::Board::of(&parts.extensions).refused("fence", &refusal);
                ResponseFuture::refused(self.shared.refused(&refusal, is_grpc(&parts.headers)))
            }
            Judged::Token(token) => {
                // The service that was polled ready is the one to call; the clone left in its place has
                // not been (tower-rs/tower #547).
                let fresh = self.inner.clone();
                let ready = mem::replace(&mut self.inner, fresh);
                let grpc = is_grpc(&parts.headers);
                parts.extensions.insert(token.clone());
                let request = Request::from_parts(parts, body);
                let shared = self.shared.clone();
                let board = report::Board::of(request.extensions());
                ResponseFuture::guarded(Box::pin(async move {
                    match guarded(&shared, &token, ready, request).await {
                        Guarded::Answered(answer) => answer,
                        Guarded::Refused(refusal) => {
                            board.refused("fence", &refusal);
                            Ok(shared.refused(&refusal, grpc))
                        }
                    }
                }))
            }
        }
    }
}

enum Guarded<A> {
    Answered(A),
    Refused(Refusal),
}

/// Runs one call between the store's yes and the arrival of a newer one. The order of its steps is argued
/// in [`drain`](super::drain); whatever ends it, the ticket goes last.
async fn guarded<S, B, R>(
    shared: &Shared,
    token: &FencingToken,
    mut ready: S,
    request: Request<B>,
) -> Guarded<Result<Response<FenceBody<R>>, S::Error>>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body + Send + 'static,
{
    let ticket = shared
        .registry
        .enter(token.resource().into(), token.token());
    let superseded = || {
        Guarded::Refused(
            Refusal::new(Code::TokenStale)
                .with_reason("superseded")
                .with_detail("a newer token was admitted while this call was running"),
        )
    };

    let asked = shared
        .store
        .dyn_admit(token.resource(), token.token(), token.nonce());
    match ticket.until_cancelled(asked).await {
        None => return superseded(),
        Some(answer) => {
            if let Err(error) = FenceError::judge(answer) {
                return Guarded::Refused(error.refusal());
            }
        }
    }
    ticket.admit();
    match drained(shared, &ticket).await {
        Drained::Run => {}
        Drained::Cancelled => return superseded(),
        Drained::TimedOut => {
            return Guarded::Refused(
                Refusal::new(Code::WaitTimeout)
                    .with_detail("calls with an older token are still ending"),
            );
        }
    }
    match ticket.until_cancelled(ready.call(request)).await {
        None => superseded(),
        Some(answer) => Guarded::Answered(answer.map(|response| still_running(response, ticket))),
    }
}

/// A stream is still part of the call; a body of known length is not.
fn still_running<R>(response: Response<R>, ticket: Ticket) -> Response<FenceBody<R>>
where
    R: Body + Send + 'static,
{
    response.map(|body| {
        if body.is_end_stream() || body.size_hint().exact().is_some() {
            FenceBody::pass(body)
        } else {
            FenceBody::stream(body, ticket)
        }
    })
}

enum Drained {
    Run,
    Cancelled,
    TimedOut,
}

async fn drained(shared: &Shared, ticket: &Ticket) -> Drained {
    // No timer for the usual case, in which nobody is in the way.
    match ticket.turn_now() {
        Turn::Run => return Drained::Run,
        Turn::Cancelled => return Drained::Cancelled,
        Turn::Wait => {}
    }
    let timeout = shared
        .clock
        .sleep_until(shared.clock.now() + shared.drain_timeout);
    match select(std::pin::pin!(ticket.turn()), timeout).await {
        Either::Left((true, _)) => Drained::Run,
        Either::Left((false, _)) => Drained::Cancelled,
        Either::Right(_) => Drained::TimedOut,
    }
}

enum Judged {
    Pass,
    Token(FencingToken),
    Refused(Refusal),
}

impl Shared {
    fn judge(&self, parts: &Parts) -> Judged {
        let resource = match self.resource.resources(parts) {
            Resources::None => return Judged::Pass,
            Resources::Invalid => return Judged::Refused(key_invalid()),
            Resources::Some(resources) => resources,
        };
        let found = resource
            .first()
            .map(|resource| FencingToken::find(&parts.headers, resource));
        match found {
            None => Judged::Pass,
            Some(Ok(None)) => match self.missing {
                MissingToken::Allow => Judged::Pass,
                MissingToken::Require => Judged::Refused(
                    Refusal::new(Code::TokenMissing)
                        .with_detail("send `Fencing-Token: <resource>;t=<token>;o=<nonce>`"),
                ),
            },
            Some(Ok(Some(token))) if self.is_inflated(&token) => {
                Judged::Refused(invalid(InvalidFencingToken::Inflated))
            }
            Some(Ok(Some(token))) => Judged::Token(token),
            Some(Err(error)) => Judged::Refused(invalid(error)),
        }
    }

    /// Whether the token's clock part (milliseconds · 1024) is too far ahead of our wall clock.
    fn is_inflated(&self, token: &FencingToken) -> bool {
        let Some(ahead) = self.max_ahead else {
            return false;
        };
        let granted = Duration::from_millis(token.token().get() / 1024);
        granted > self.clock.unix_time().saturating_add(ahead)
    }

    fn refused<R>(&self, refusal: &Refusal, grpc: bool) -> Response<FenceBody<R>> {
        self.refuse
            .respond(refusal, grpc)
            .map(|body: Bytes| FenceBody::refused(body))
    }
}

fn invalid(error: InvalidFencingToken) -> Refusal {
    Refusal::new(Code::TokenInvalid)
        .with_reason(error.reason())
        .with_detail(error.to_string())
}

impl<S: fmt::Debug> fmt::Debug for Fence<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
