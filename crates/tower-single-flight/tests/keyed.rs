//! The layer for any service, over services that are not always ready.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{paused, real};
use futures_util::future::{BoxFuture, join_all};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_claim::TokioClock;
use tower_single_flight::{FlightError, KeyedFlightLayer};

const MS: Duration = Duration::from_millis(1);

fn layer() -> KeyedFlightLayer<u32, u32> {
    KeyedFlightLayer::builder(|n: &u32| (*n < 100).then_some(*n))
        .clock(Arc::new(TokioClock::new()))
        .build()
        .unwrap()
}

type Count = Arc<AtomicUsize>;

fn upstream(
    calls: &Count,
) -> impl Service<
    u32,
    Response = u32,
    Error = &'static str,
    Future = BoxFuture<'static, Result<u32, &'static str>>,
> + Clone
+ Send
+ 'static {
    let calls = Arc::clone(calls);
    service_fn(move |n: u32| {
        calls.fetch_add(1, SeqCst);
        Box::pin(async move {
            sleep(20 * MS).await;
            if n == 13 { Err("down") } else { Ok(n) }
        }) as _
    })
}

#[test]
fn equal_calls_are_merged_and_the_rest_passes() {
    paused(async {
        let calls = Count::default();
        let layer = layer();
        let service = layer.layer(upstream(&calls));
        let answers = join_all((0..10).map(|_| service.clone().oneshot(7))).await;
        assert!(answers.into_iter().all(|a| matches!(a, Ok(7))));
        assert_eq!(calls.load(SeqCst), 1);
        join_all((0..10).map(|_| service.clone().oneshot(200))).await;
        assert_eq!(calls.load(SeqCst), 11, "no key, no merging");
        let failures = join_all((0..10).map(|_| service.clone().oneshot(13))).await;
        assert!(
            failures
                .iter()
                .all(|f| matches!(f, Err(FlightError::Failed(e)) if **e == "down"))
        );
        assert_eq!(calls.load(SeqCst), 12);
        assert_eq!((layer.flights(), layer.followers()), (0, 0));
    });
}

#[test]
fn services_of_one_layer_value_share_and_those_of_two_do_not() {
    paused(async {
        let calls = Count::default();
        let (one, other) = (layer(), layer());
        let a = one.layer(upstream(&calls));
        let b = one.clone().layer(upstream(&calls));
        let c = other.layer(upstream(&calls));
        let (a, b, c) = tokio::join!(a.oneshot(7), b.oneshot(7), c.oneshot(7));
        assert_eq!((a.unwrap(), b.unwrap(), c.unwrap()), (7, 7, 7));
        assert_eq!(calls.load(SeqCst), 2);
    });
}

#[test]
fn followers_never_ask_for_the_inner_services_capacity() {
    paused(async {
        let calls = Count::default();
        let limited = ServiceBuilder::new()
            .layer(layer())
            .concurrency_limit(1)
            .service(upstream(&calls));
        let began = Instant::now();
        let answers = join_all((0..10).map(|_| limited.clone().oneshot(7))).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!((calls.load(SeqCst), began.elapsed()), (1, 20 * MS));

        let shedding = ServiceBuilder::new()
            .layer(layer())
            .load_shed()
            .concurrency_limit(1)
            .service(upstream(&calls));
        let answers = join_all((0..10).map(|_| shedding.clone().oneshot(7))).await;
        assert!(answers.iter().all(Result::is_ok), "nothing is shed");
        assert_eq!(calls.load(SeqCst), 2);

        let buffered = ServiceBuilder::new()
            .layer(layer())
            .buffer(1)
            .concurrency_limit(1)
            .service(upstream(&calls));
        let answers = join_all((0..10).map(|n| buffered.clone().oneshot(n % 2))).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(calls.load(SeqCst), 4);
    });
}

/// Panics when it is called without having been ready, as the contract of `Service` allows.
#[derive(Debug)]
struct Strict {
    ready: bool,
    fails: Arc<AtomicBool>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            fails: Arc::clone(&self.fails),
        }
    }
}

impl Service<u32> for Strict {
    type Response = u32;
    type Error = &'static str;
    type Future = std::future::Ready<Result<u32, &'static str>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        if self.fails.load(SeqCst) {
            return Poll::Ready(Err("not ready"));
        }
        if !self.ready {
            self.ready = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, n: u32) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        std::future::ready(Ok(n))
    }
}

#[test]
fn the_inner_service_is_called_only_when_it_is_ready() {
    real(async {
        let fails = Arc::new(AtomicBool::new(false));
        let strict = Strict {
            ready: false,
            fails: Arc::clone(&fails),
        };
        let mut service = layer().layer(strict);
        for n in [7, 7, 200, 200] {
            // Called without `ready`: the service itself is always ready.
            assert_eq!(service.call(n).await.unwrap(), n);
        }
        fails.store(true, SeqCst);
        for n in [7, 200] {
            let error = service.ready().await.unwrap().call(n).await.unwrap_err();
            assert_eq!(**error.failure().unwrap(), "not ready");
        }
    });
}

#[test]
fn a_panic_in_call_or_in_the_key_function_locks_no_key() {
    real(async {
        let broken = Arc::new(AtomicBool::new(true));
        let panics = Arc::clone(&broken);
        let service = KeyedFlightLayer::new(|n: &u32| {
            assert!(*n != 1, "in the key function");
            Some(*n)
        })
        .layer(service_fn(move |n: u32| {
            assert!(!panics.load(SeqCst), "in call");
            std::future::ready(Ok::<_, std::convert::Infallible>(n))
        }));
        for n in [1, 7] {
            let service = service.clone();
            let panicked = tokio::spawn(async move { service.oneshot(n).await });
            assert!(panicked.await.unwrap_err().is_panic());
        }
        broken.store(false, SeqCst);
        assert_eq!(service.oneshot(7).await.unwrap(), 7);
    });
}
