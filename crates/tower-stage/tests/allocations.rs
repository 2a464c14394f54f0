//! What a row costs in allocations.

#![cfg(feature = "axum")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::routing::get;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use tower::layer::util::Identity;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_http::trace::TraceLayer;
use tower_stage::{Board, Stage, StageLayer, mark};

async fn handler() -> &'static str {
    for stage in [Stage::Validated, Stage::UpstreamCalled, Stage::Persisted] {
        mark(stage);
    }
    "hello"
}

/// Allocations of one request, once everything is warm.
fn count(run: impl Fn()) -> u64 {
    (0..3).for_each(|_| run());
    allocation_counter::measure(run).count_total
}

/// As `axum::serve` does it: without `with_state` the layer is applied anew for every request.
fn on_axum(app: Router) -> u64 {
    let app: Router = app.with_state(());
    count(|| {
        let response = app.clone().oneshot(Request::new(Body::empty()));
        let body = response.now_or_never().unwrap().unwrap().into_body();
        body.collect().now_or_never().unwrap().unwrap();
    })
}

/// The one is the handle in the extensions. What `TraceLayer` has beyond `Identity` is the host's, which
/// boxes a body that is not its own: every layer that follows the response to its end pays it.
#[test]
fn on_axum_a_row_and_its_marks_allocate_one_more_than_trace() {
    let app = || Router::new().route("/", get(handler));
    let identity = on_axum(app().layer(Identity::new()));
    let trace = on_axum(app().layer(TraceLayer::new_for_http()));
    let stage = on_axum(app().layer(StageLayer::new(Board::new())));
    assert_eq!(trace - identity, 1);
    // With all of axum's features the host's own extensions fill their map, and ours makes it grow.
    assert!((1..=2).contains(&(stage - trace)), "{stage} after {trace}");
}

#[test]
fn a_row_off_axum_is_one_allocation() {
    let inner = service_fn(|_: Request<()>| async {
        mark(Stage::Persisted);
        Ok::<_, std::convert::Infallible>(Response::new(http_body_util::Full::<&[u8]>::from(
            &b"hello"[..],
        )))
    });
    // A host puts something of its own into the extensions, so their map is there.
    let request = || {
        let mut request = Request::new(());
        request.extensions_mut().insert(7_u8);
        request
    };
    let bare = count(|| {
        let response = inner.oneshot(request()).now_or_never().unwrap().unwrap();
        response
            .into_body()
            .collect()
            .now_or_never()
            .unwrap()
            .unwrap();
    });
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(Board::new()))
        .service(inner);
    let stage = count(|| {
        let response = service.clone().oneshot(request());
        let body = response.now_or_never().unwrap().unwrap().into_body();
        body.collect().now_or_never().unwrap().unwrap();
    });
    assert_eq!(stage, bare + 1);
}
