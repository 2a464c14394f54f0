//! Older calls are gone before a newer one runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::marks::*;
use crate::support::*;
use crate::world::{ok, ran, refused};
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceExt};
use tower_claim::{Nonce, TokioClock};
use tower_lease_guard::fence::Superseded;
use tower_lease_guard::{FenceLayer, FencingToken};

/// A service whose first call hangs with a guard in its hand, while later ones write.
fn first_hangs(
    log: &Log,
) -> impl Service<Request<()>, Response = Response<TestBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let log = log.clone();
    tower::service_fn(move |req: Request<()>| {
        let log = log.clone();
        let t = req
            .extensions()
            .get::<FencingToken>()
            .unwrap()
            .token()
            .get();
        async move {
            if t == 1 {
                log.add("old inside");
                let _gone = OnDrop(log.clone(), "old gone");
                std::future::pending::<()>().await;
            }
            log.add(format!("{t} writes"));
            Ok(Response::new(full("ran")))
        }
    })
}

#[tokio::test]
async fn an_older_call_is_gone_before_a_newer_one_runs() {
    let (log, fence) = (Log::default(), fence());
    let service = fence.layer(first_hangs(&log));
    let old = tokio::spawn(service.clone().oneshot(write(1, 1)));
    while log.lines().is_empty() {
        tokio::task::yield_now().await;
    }
    let new = service.clone().oneshot(write(2, 2)).await.unwrap();
    assert_eq!(refusal(new).await, ran());
    assert_eq!(log.lines(), ["old inside", "old gone", "2 writes"]);
    let old = tokio::time::timeout(Duration::from_secs(30), old);
    let old = old.await.expect("not cancelled").unwrap().unwrap();
    assert_eq!(refusal(old).await, refused(412, "token-stale/superseded"));
}

#[tokio::test(start_paused = true)]
async fn a_newer_call_waits_for_an_older_one_and_gives_up_in_time() {
    let (log, limit) = (Log::default(), Duration::from_secs(5));
    let clock = Arc::new(TokioClock::new());
    let fence = FenceLayer::builder(Marks::default(), resource)
        .drain_timeout(limit)
        .clock(clock)
        .build()
        .unwrap();
    let service = fence.layer(first_hangs(&log));
    let mut old = Box::pin(service.clone().oneshot(write(1, 1)));
    while log.lines().is_empty() {
        assert!(once(&mut old).await.is_none());
        tokio::task::yield_now().await;
    }
    // Nobody polls the old call from here on: it cannot end.
    let start = tokio::time::Instant::now();
    let new = service.clone().oneshot(write(2, 2)).await.unwrap();
    assert_eq!(refusal(new).await, refused(503, "wait-timeout"));
    assert_eq!(start.elapsed(), limit);

    let again = tokio::spawn(service.clone().oneshot(write(2, 2)));
    tokio::time::sleep(limit / 2).await;
    assert!(!again.is_finished());
    drop(old);
    assert_eq!(refusal(again.await.unwrap().unwrap()).await, ran());
    assert_eq!(log.lines(), ["old inside", "old gone", "2 writes"]);
}

#[tokio::test]
async fn calls_of_one_owner_run_side_by_side() {
    let (fence, both) = (fence(), Arc::new(tokio::sync::Barrier::new(2)));
    let service = fence.layer(tower::service_fn(move |_: Request<()>| {
        let both = both.clone();
        async move {
            both.wait().await;
            Ok::<_, Infallible>(Response::new(full("ran")))
        }
    }));
    let (a, b) = tokio::join!(
        service.clone().oneshot(write(1, 1)),
        service.clone().oneshot(write(1, 1))
    );
    assert_eq!(
        (refusal(a.unwrap()).await, refusal(b.unwrap()).await),
        (ran(), ran())
    );
}

fn streaming(
    log: &Log,
) -> impl Service<Request<()>, Response = Response<TestBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let log = log.clone();
    tower::service_fn(move |req: Request<()>| {
        let log = log.clone();
        let t = req
            .extensions()
            .get::<FencingToken>()
            .unwrap()
            .token()
            .get();
        async move {
            log.add(format!("{t} runs"));
            let guard = (t == 1).then(|| OnDrop(log.clone(), "old stream gone"));
            let body = Frames {
                frames: vec!["a"],
                ends: t != 1,
                guard,
            };
            Ok(Response::new(body.boxed_unsync()))
        }
    })
}

#[tokio::test]
async fn a_stream_nobody_reads_cannot_keep_a_newer_call_waiting() {
    let (log, fence) = (Log::default(), fence());
    let service = fence.layer(streaming(&log));
    let mut old = service
        .clone()
        .oneshot(write(1, 1))
        .await
        .unwrap()
        .into_body();
    assert!(old.frame().await.unwrap().unwrap().is_data());
    let new = service.clone().oneshot(write(2, 2)).await.unwrap();
    assert_eq!(log.lines(), ["1 runs", "old stream gone", "2 runs"]);
    assert_eq!(text(new.into_body()).await, "a");
    let end = old.frame().await.unwrap().unwrap_err();
    assert!(
        end.is::<Superseded>(),
        "a cut stream must not end cleanly: {end}"
    );
}

#[tokio::test]
async fn a_stream_that_is_being_read_is_woken_and_cut() {
    let (log, fence) = (Log::default(), fence());
    let service = fence.layer(streaming(&log));
    let old = service.clone().oneshot(write(1, 1)).await.unwrap();
    let reader = tokio::spawn(old.into_body().collect());
    tokio::task::yield_now().await;
    service.clone().oneshot(write(2, 2)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), reader).await;
    let ended = ended.expect("not woken").unwrap();
    assert!(ended.unwrap_err().is::<Superseded>());
}

#[tokio::test]
async fn a_response_of_known_length_is_finished_work_and_is_not_cut() {
    let fence = fence();
    let service = fence.layer(tower::service_fn(ok));
    let old = service.clone().oneshot(write(1, 1)).await.unwrap();
    service.clone().oneshot(write(2, 2)).await.unwrap();
    assert_eq!(text(old.into_body()).await, "ran");
}

#[tokio::test]
async fn a_call_dropped_at_any_await_keeps_nobody_waiting() {
    let gate = Arc::new(Notify::new());
    let fence = fence();
    let service = fence.layer(tower::service_fn({
        let gate = gate.clone();
        move |req: Request<()>| {
            let gate = gate.clone();
            let nonce = req.extensions().get::<FencingToken>().unwrap().nonce();
            async move {
                tokio::task::yield_now().await;
                if nonce == Nonce::from_bytes([1; 16]) {
                    gate.notified().await;
                }
                Ok::<_, Infallible>(Response::new(full("ran")))
            }
        }
    }));
    let high = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let next = || high.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
    let mut dropped = 0;
    for polls in 0..8 {
        let mut call = Box::pin(service.clone().oneshot(write(next(), 1)));
        for _ in 0..polls {
            assert!(once(&mut call).await.is_none(), "it hangs at the gate");
            tokio::task::yield_now().await;
        }
        drop(call);
        dropped += 1;
        let after = tokio::time::timeout(
            Duration::from_secs(30),
            service.clone().oneshot(write(next(), 2)),
        );
        assert_eq!(
            refusal(after.await.expect("it waits for a dropped call").unwrap()).await,
            ran()
        );
    }
    assert_eq!(dropped, 8);
}
