//! The client's side: outgoing requests show the fencing token.

use std::task::{Context, Poll};

use http::{HeaderMap, Request};
use tower_layer::Layer;
use tower_service::Service;

use crate::lease::Lease;
use crate::token::{FENCING_TOKEN, FencingToken};

/// Around a client: puts `Fencing-Token` lines on each request that has a [`Lease`] in its extensions, one
/// per leased resource, so that the server's [`FenceLayer`](crate::FenceLayer) can tell a stale owner.
///
/// Lines for other resources stay; one for a leased resource is replaced. A request without a lease passes
/// as it is. Whether the lease still stands is for [`Lease::check`] to say; the server judges anyway.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct StampLayer;

impl StampLayer {
    /// The layer. It has no settings.
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for StampLayer {
    type Service = Stamp<S>;

    fn layer(&self, inner: S) -> Stamp<S> {
        Stamp { inner }
    }
}

/// Stamps outgoing requests. Made by [`StampLayer`].
#[derive(Debug, Clone)]
pub struct Stamp<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for Stamp<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if let Some(lease) = request.extensions().get::<Lease>().cloned() {
            stamp(request.headers_mut(), &lease);
        }
        self.inner.call(request)
    }
}

/// Puts the tokens of a lease, and of the leases outside it, into a request's headers.
fn stamp(headers: &mut HeaderMap, lease: &Lease) {
    let ours: Vec<FencingToken> = lease.chain().flat_map(Lease::fences).collect();
    let is_ours = |line: &http::HeaderValue| {
        let token = line.to_str().ok().and_then(|line| line.parse().ok());
        token.is_some_and(|token: FencingToken| {
            ours.iter().any(|our| our.resource() == token.resource())
        })
    };
    let kept: Vec<_> = headers
        .get_all(&FENCING_TOKEN)
        .iter()
        .filter(|line| !is_ours(line))
        .cloned()
        .collect();
    headers.remove(&FENCING_TOKEN);
    let lines = kept
        .into_iter()
        .chain(ours.iter().map(FencingToken::to_header_value));
    for line in lines {
        headers.append(&FENCING_TOKEN, line);
    }
}
