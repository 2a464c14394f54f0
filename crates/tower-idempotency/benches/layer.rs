//! What the layer costs over the bare service, on the memory store.
//!
//! The budget: first run 5 µs, replay 2.5 µs over the bare service.
#![expect(clippy::unwrap_used, reason = "a bench")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt};
use tower_claim::MemoryStore;
use tower_idempotency::{IdempotencyLayer, RequestBody};

type Body = Full<Bytes>;

async fn handler<B>(request: Request<B>) -> Result<Response<Body>, Infallible>
where
    B: http_body::Body<Data = Bytes>,
{
    let read = request.into_body().collect().await.map(|b| b.to_bytes());
    let body = Bytes::from(read.map_or(0, |b| b.len()).to_string());
    let response = Response::builder()
        .status(201)
        .header("location", "/orders/1");
    Ok(response.body(Full::new(body)).unwrap_or_default())
}

fn request(key: Option<u64>) -> Request<Body> {
    let mut request = Request::post("/orders").header("content-type", "application/json");
    if let Some(key) = key {
        let key = format!("8e03978e-40d5-43dd-bc93-{key:012x}");
        request = request.header("idempotency-key", key);
    }
    let body = br#"{"item": 7, "quantity": 3, "address": "Main street 1"}"#;
    request.body(Full::new(Bytes::from_static(body))).unwrap()
}

async fn ask<S, R>(service: &S, key: Option<u64>) -> usize
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone,
    R: http_body::Body<Data = Bytes>,
    R::Error: std::fmt::Debug,
{
    let Ok(response) = service.clone().oneshot(request(key)).await;
    assert_eq!(response.status(), 201);
    let body = response.into_body().collect().await;
    body.unwrap().to_bytes().len()
}

fn layer(c: &mut Criterion) {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    // Room for as many first runs as a bench makes.
    let store = MemoryStore::builder()
        .memory_limit(16 << 30)
        .max_records(50_000_000)
        .build()
        .unwrap();
    let layer = IdempotencyLayer::new(store);
    let bare = tower::service_fn(handler::<Body>);
    let service = layer.layer(tower::service_fn(handler::<RequestBody<Body>>));
    let next = AtomicU64::new(1);
    let mut group = c.benchmark_group("idempotency");
    group.bench_function("bare", |b| {
        b.to_async(runtime()).iter(|| ask(&bare, None));
    });
    group.bench_function("pass-through", |b| {
        b.to_async(runtime()).iter(|| ask(&service, None));
    });
    group.bench_function("replay", |b| {
        b.to_async(runtime()).iter(|| ask(&service, Some(0)));
    });
    group.bench_function("first run", |b| {
        b.to_async(runtime())
            .iter(|| ask(&service, Some(next.fetch_add(1, Ordering::Relaxed))));
    });
    group.finish();
}

criterion_group!(benches, layer);
criterion_main!(benches);
