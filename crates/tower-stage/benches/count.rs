//! One case, so many times, and nothing else: for `valgrind --tool=callgrind`, whose instruction counts can be
//! repeated where nanoseconds cannot. The cost of a request is the difference of two runs.
//!
//! `count <bare|identity|trace|row|marks> <axum|plain> <requests>`

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program"
)]

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use tower::layer::util::Identity;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_claim::{Clock, Moment};
use tower_http::trace::TraceLayer;
use tower_stage::{Board, Stage, StageLayer, mark};

const MARKS: [Stage; 5] = [
    Stage::Validated,
    Stage::UpstreamCalled,
    Stage::Validated,
    Stage::UpstreamCalled,
    Stage::Persisted,
];

/// The system's clock finds the kernel's page by itself, which valgrind hides from it. The count of a
/// reading is a library call, its time is the same.
#[derive(Debug)]
struct StdClock(Instant);

impl Clock for StdClock {
    fn now(&self) -> Moment {
        Moment::since_start(self.0.elapsed())
    }

    fn unix_time(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep_until(&self, _: Moment) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

async fn on_axum(app: Router, times: u64) {
    for _ in 0..times {
        let response = black_box(app.clone())
            .oneshot(Request::new(Body::empty()))
            .await;
        let response = response.unwrap_or_else(|never| match never {});
        let body = response.into_body().collect().await;
        black_box(body.map_or(0, |body| body.to_bytes().len()));
    }
}

async fn plain<S, B>(service: S, times: u64)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes>,
{
    for _ in 0..times {
        let mut request = Request::new(Full::default());
        // A host puts something of its own into the extensions, so their map is there.
        request.extensions_mut().insert(7_u8);
        let response = black_box(service.clone()).oneshot(request).await;
        let response = response.unwrap_or_else(|never| match never {});
        let body = response.into_body().collect().await;
        black_box(body.map_or(0, |body| body.to_bytes().len()));
    }
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut next = || args.next().unwrap_or_default();
    let (case, on, times) = (next(), next(), next().parse::<u64>().unwrap_or(1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let marks = if case == "marks" { &MARKS[..] } else { &[] };
    let stage = || {
        let board = Board::builder().clock(Arc::new(StdClock(Instant::now())));
        StageLayer::new(board.build().expect("good settings"))
    };
    let clock = Instant::now();
    if on == "axum" {
        let handler = move || async move {
            marks.iter().for_each(|stage| mark(*stage));
            "hello"
        };
        let app = Router::new().route("/", get(handler));
        let app = match &*case {
            "bare" => app,
            "identity" => app.layer(Identity::new()),
            "trace" => app.layer(TraceLayer::new_for_http()),
            _ => app.layer(stage()),
        };
        // As `axum::serve` does it: otherwise the layer is applied anew for every request.
        runtime.block_on(on_axum(app.with_state(()), times));
    } else {
        let inner = service_fn(move |_: Request<Full<Bytes>>| async move {
            marks.iter().for_each(|stage| mark(*stage));
            Ok(Response::new(Full::new(Bytes::from_static(b"hello"))))
        });
        match &*case {
            "bare" | "identity" => runtime.block_on(plain(inner, times)),
            "trace" => runtime.block_on(plain(TraceLayer::new_for_http().layer(inner), times)),
            _ => runtime.block_on(plain(stage().layer(inner), times)),
        }
    }
    println!("{:.1} ns", clock.elapsed().as_nanos() as f64 / times as f64);
}
