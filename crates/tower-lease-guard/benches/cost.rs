//! What the layers cost over the bare service, on the memory store.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt};
use tower_claim::{MemoryFenceStore, MemoryStore, Nonce, Token};
use tower_lease_guard::{FENCING_TOKEN, FenceLayer, FencingToken, LeaseGuardLayer};

async fn handler(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("ok")))
}

fn request(path: &'static str) -> Request<()> {
    Request::builder().method("PUT").uri(path).body(()).unwrap()
}

async fn run<S, B>(service: &mut S, request: Request<()>)
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
    B: Body<Error: std::fmt::Debug>,
{
    let response = service.ready().await.unwrap().call(request).await.unwrap();
    black_box(response.into_body().collect().await.unwrap());
}

fn cost(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let account = |req: &http::request::Parts| {
        let path = req.uri.path();
        path.strip_prefix("/accounts/").map(str::to_owned)
    };
    let bare = tower::service_fn(handler);
    // Under `/accounts/` each request works on a resource of its own; `/hot` is one for all.
    let next = AtomicU64::new(0);
    let leases =
        LeaseGuardLayer::new(
            MemoryStore::new(),
            move |req: &http::request::Parts| match req.uri.path() {
                "/hot" => Some(u64::MAX),
                "/accounts/a" => Some(next.fetch_add(1, Ordering::Relaxed)),
                _ => None,
            },
        )
        .layer(bare);
    let fence = FenceLayer::new(MemoryFenceStore::new(), account).layer(bare);
    let token = FencingToken::new("a", Token::MAX, Nonce::from_bytes([7; 16])).unwrap();

    let mut group = c.benchmark_group("lease_guard");
    group.bench_function("bare", |b| {
        b.to_async(&runtime).iter(|| {
            let mut service = bare;
            async move { run(&mut service, request("/elsewhere")).await }
        });
    });
    for (name, path) in [
        ("lease/pass", "/elsewhere"),
        ("lease/leased", "/accounts/a"),
        ("lease/leased, one hot key", "/hot"),
    ] {
        group.bench_function(name, |b| {
            b.to_async(&runtime).iter(|| {
                let mut service = leases.clone();
                async move { run(&mut service, request(path)).await }
            });
        });
    }
    group.bench_function("fence/pass", |b| {
        b.to_async(&runtime).iter(|| {
            let mut service = fence.clone();
            async move { run(&mut service, request("/elsewhere")).await }
        });
    });
    group.bench_function("fence/admitted", |b| {
        let line = token.to_header_value();
        b.to_async(&runtime).iter(|| {
            let mut service = fence.clone();
            let mut request = request("/accounts/a");
            request.headers_mut().insert(&FENCING_TOKEN, line.clone());
            async move { run(&mut service, request).await }
        });
    });
    group.finish();
}

criterion_group!(benches, cost);
criterion_main!(benches);
