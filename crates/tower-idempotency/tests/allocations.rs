//! What the layer costs in allocations.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::layer::util::Identity;
use tower::{Layer, Service, ServiceExt};
use tower_claim::http::{Gate, Mode, Switch};
use tower_claim::{MemoryStore, RunOn, TokioClock};
use tower_idempotency::{IdempotencyLayer, OnBusy, RequestBody};

type Body = Full<Bytes>;

async fn handler<B>(request: Request<B>) -> Result<Response<Body>, Infallible>
where
    B: http_body::Body<Data = Bytes>,
{
    let read = request.into_body().collect().await.map(|b| b.to_bytes());
    Ok(Response::new(Full::new(read.unwrap_or_default())))
}

fn request(method: &str, key: Option<&str>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri("/orders");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(Full::new(Bytes::from_static(b"{}"))).unwrap()
}

/// Allocations of one request, once everything is warm.
fn count<S, R>(service: &S, request: impl Fn() -> Request<Body>) -> u64
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone,
    R: http_body::Body<Data = Bytes>,
    R::Error: std::fmt::Debug,
{
    let run = || {
        let response = service.clone().oneshot(request()).now_or_never();
        let body = response.unwrap().unwrap().into_body();
        assert_eq!(
            body.collect().now_or_never().unwrap().unwrap().to_bytes(),
            "{}"
        );
    };
    (0..3).for_each(|_| run());
    allocation_counter::measure(run).count_total
}

#[test]
fn a_request_that_is_none_of_the_layers_business_allocates_nothing_more() {
    let bare = Identity::new().layer(tower::service_fn(handler::<Body>));
    let layer = IdempotencyLayer::builder(MemoryStore::new()).scope(|req| {
        req.headers
            .get("x-tenant")?
            .to_str()
            .ok()
            .map(str::to_owned)
    });
    let layer = layer.build().unwrap();
    let service = layer.layer(tower::service_fn(handler::<RequestBody<Body>>));
    let off = IdempotencyLayer::builder(MemoryStore::new())
        .gate(Gate::new().switch(Switch::new(Mode::Off)));
    let off = off.build().unwrap();
    let off = off.layer(tower::service_fn(handler::<RequestBody<Body>>));
    for (method, key) in [("POST", None), ("GET", None), ("GET", Some("k"))] {
        let request = || request(method, key);
        let identity = count(&bare, request);
        assert_eq!(count(&service, request), identity, "{method} {key:?}");
        assert_eq!(count(&off, request), identity, "off: {method} {key:?}");
    }
}

/// The last of 10,000 waiting repeats costs what the first does, and nothing of any is left behind.
#[test]
fn a_waiting_repeat_costs_little_memory_and_leaves_none_behind() {
    const CROWD: usize = 10_000;
    const BYTES_EACH: u64 = 8 * 1024;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let clock = std::sync::Arc::new(TokioClock::new());
        let store = MemoryStore::builder().clock(clock.clone());
        let layer = IdempotencyLayer::builder(store.build().unwrap())
            .clock(clock)
            .run_on(RunOn::Task)
            .on_busy(OnBusy::Wait(Duration::from_secs(60)))
            .max_waiters_per_key(CROWD);
        let layer = layer.build().unwrap();
        let service = layer.layer(tower::service_fn(async |request| {
            tokio::time::sleep(Duration::from_secs(5)).await;
            handler::<RequestBody<Body>>(request).await
        }));
        let ask = || service.clone().oneshot(request("POST", Some("8e03978e")));
        let first = tokio::spawn(ask());
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut crowd = Vec::with_capacity(CROWD);
        let wait = |crowd: &mut Vec<_>| {
            let mut repeat = Box::pin(ask());
            assert!((&mut repeat).now_or_never().is_none());
            crowd.push(repeat);
        };
        wait(&mut crowd);
        let held = allocation_counter::measure(|| (1..CROWD).for_each(|_| wait(&mut crowd)));
        assert_eq!(layer.waiting(), CROWD);
        let each = u64::try_from(held.bytes_current).unwrap() / CROWD as u64;
        assert!(each < BYTES_EACH, "{each} bytes for each that waits");
        let freed = allocation_counter::measure(|| crowd.clear());
        assert_eq!(layer.waiting(), 0);
        let left = held.bytes_current + freed.bytes_current;
        assert!(left <= 64 * 1024, "{left} bytes are left behind");
        first.await.unwrap().unwrap();
    });
}
