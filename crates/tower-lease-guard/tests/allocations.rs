//! What a request that uses none of the layers costs in allocations.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::layer::util::Identity;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_claim::http::{Gate, Mode, Switch};
use tower_claim::{MemoryFenceStore, MemoryStore};
use tower_lease_guard::{FenceLayer, LeaseGuardLayer, StampLayer};

async fn handler(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

/// Allocations of one request, once everything is warm.
fn count<S, B>(service: S) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Error: std::fmt::Debug>,
{
    let run = || {
        let response = service.clone().oneshot(Request::new(()));
        let body = response.now_or_never().unwrap().unwrap().into_body();
        body.collect().now_or_never().unwrap().unwrap();
    };
    (0..3).for_each(|_| run());
    allocation_counter::measure(run).count_total
}

#[test]
fn a_request_that_uses_none_of_the_layers_allocates_nothing() {
    let none = |_: &http::request::Parts| None::<String>;
    let all = |_: &http::request::Parts| "a";
    let off = || Gate::new().switch(Switch::new(Mode::Off));
    let bare = count(Identity::new().layer(service_fn(handler)));

    let lease = LeaseGuardLayer::new(MemoryStore::new(), none);
    assert_eq!(count(lease.layer(service_fn(handler))), bare);
    let lease = LeaseGuardLayer::builder(MemoryStore::new(), all).gate(off());
    let lease = lease.build().unwrap();
    assert_eq!(count(lease.layer(service_fn(handler))), bare);

    let fence = FenceLayer::new(MemoryFenceStore::new(), none);
    assert_eq!(count(fence.layer(service_fn(handler))), bare);
    let fence = FenceLayer::builder(MemoryFenceStore::new(), all).gate(off());
    let fence = fence.build().unwrap();
    assert_eq!(count(fence.layer(service_fn(handler))), bare);

    let stamp = StampLayer::new().layer(service_fn(handler));
    assert_eq!(count(stamp), bare);
}
