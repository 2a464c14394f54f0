//! What a row costs beside tower-http's `TraceLayer` without a subscriber: one request through an axum
//! router, its body read to the end.

#![allow(
    missing_docs,
    clippy::expect_used,
    reason = "a program; criterion's macros"
)]

use std::hint::black_box;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use criterion::{Criterion, criterion_group, criterion_main};
use http_body_util::BodyExt;
use tower::ServiceExt;
use tower::layer::util::Identity;
use tower_claim::http::Gate;
use tower_http::trace::TraceLayer;
use tower_stage::{Board, Stage, StageLayer, mark};

async fn plain() -> &'static str {
    "hello"
}

async fn marking() -> &'static str {
    for stage in [
        Stage::Validated,
        Stage::UpstreamCalled,
        Stage::Validated,
        Stage::UpstreamCalled,
        Stage::Persisted,
    ] {
        mark(stage);
    }
    "hello"
}

async fn one(app: Router) -> usize {
    let response = app.oneshot(Request::new(Body::empty())).await;
    let response = response.unwrap_or_else(|never| match never {});
    let body = response.into_body().collect().await;
    body.map_or(0, |body| body.to_bytes().len())
}

fn pass_through(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let stage = || StageLayer::new(Board::new());
    let app = || Router::new().route("/", get(plain));
    let marks = || Router::new().route("/", get(marking));

    let mut group = c.benchmark_group("axum");
    for (name, app) in [
        ("bare", app()),
        ("identity", app().layer(Identity::new())),
        (
            "trace, no subscriber",
            app().layer(TraceLayer::new_for_http()),
        ),
        ("row", app().layer(stage())),
        ("row, 5 marks", marks().layer(stage())),
        ("no layer, 5 marks", marks()),
        (
            "not tracked",
            app().layer(
                StageLayer::builder(Board::new())
                    .gate(Gate::new().methods([]))
                    .build()
                    .expect("good settings"),
            ),
        ),
    ] {
        // As `axum::serve` does it: otherwise the layer is applied anew for every request.
        let app: Router = app.with_state(());
        group.bench_function(name, |b| {
            b.to_async(&runtime).iter(|| one(black_box(app.clone())));
        });
    }
    group.finish();

    c.bench_function("mark", |b| {
        let board = Board::new();
        let row = std::sync::Mutex::new(tower_stage::StageHandle::inert());
        let service = tower::ServiceBuilder::new()
            .layer(StageLayer::new(board))
            .service_fn(|request: Request<()>| {
                *row.lock().expect("no panic") = tower_stage::StageHandle::of(request.extensions());
                std::future::pending::<Result<axum::http::Response<Body>, std::io::Error>>()
            });
        let mut service = service;
        let _call = tower::Service::call(&mut service, Request::new(()));
        let row = row.lock().expect("no panic").clone();
        b.iter(|| row.mark(black_box(Stage::Persisted)));
    });
}

criterion_group!(benches, pass_through);
criterion_main!(benches);
