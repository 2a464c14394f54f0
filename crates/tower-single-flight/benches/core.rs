//! What a call costs that nobody joins: the core over the bare future, the layers over the bare service.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::convert::Infallible;
use std::future::{Future, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_single_flight::{KeyedFlightLayer, SingleFlight, SingleFlightLayer};

/// Polls a future that is ready at once: no runtime in the measure.
fn now<F: Future>(future: F) -> F::Output {
    let mut cx = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut cx) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("every service here is ready at once"),
    }
}

fn keys() -> impl FnMut() -> String {
    let keys: Vec<String> = (0..1_024).map(|n| format!("key number {n}")).collect();
    let mut n = 0;
    move || {
        n = (n + 1) % keys.len();
        keys[n].clone()
    }
}

fn core(c: &mut Criterion) {
    let mut group = c.benchmark_group("core, nobody joins");
    let mut key = keys();
    group.bench_function("bare", |b| {
        b.iter(|| {
            black_box(key());
            now(ready(Ok::<_, Infallible>(black_box(7_u64))))
        });
    });
    let flights: SingleFlight<String, u64> = SingleFlight::new();
    let mut key = keys();
    group.bench_function("SingleFlight::run", |b| {
        b.iter(|| now(flights.run(key(), || ready(Ok(black_box(7))))));
    });
    let layer = KeyedFlightLayer::new(|key: &String| Some(key.clone()));
    let service = layer.layer(service_fn(|_: String| ready(Ok::<_, Infallible>(7_u64))));
    let mut key = keys();
    group.bench_function("KeyedFlightLayer", |b| {
        b.iter(|| now(service.clone().oneshot(key())));
    });
    group.finish();
}

fn http(c: &mut Criterion) {
    let bare = service_fn(|_: Request<Full<Bytes>>| {
        ready(Ok::<_, Infallible>(Response::new(Full::new(
            Bytes::from_static(b"x"),
        ))))
    });
    let request = |method: &str, rich: bool| {
        let mut request = Request::builder()
            .method(method)
            .uri("http://shop.example/items/7?page=2");
        if rich {
            for (name, value) in [
                ("accept", "text/html,application/xhtml+xml"),
                ("accept-encoding", "gzip, br"),
                ("accept-language", "en"),
                ("user-agent", "bench/1.0"),
                ("referer", "http://shop.example/items"),
                ("sec-fetch-mode", "navigate"),
            ] {
                request = request.header(name, value);
            }
        }
        request.body(Full::<Bytes>::default()).unwrap()
    };
    let layered = SingleFlightLayer::new().layer(bare);
    for (name, method, rich) in [
        ("HTTP, no headers", "GET", false),
        ("HTTP, a browser's headers", "GET", true),
        ("HTTP, passed through", "POST", false),
    ] {
        let mut group = c.benchmark_group(name);
        group.bench_function("bare", |b| {
            b.iter(|| now(bare.clone().call(request(method, rich))));
        });
        group.bench_function("SingleFlightLayer", |b| {
            b.iter(|| now(layered.clone().call(request(method, rich))));
        });
        group.finish();
    }
}

criterion_group!(benches, core, http);
criterion_main!(benches);
