//! Waiting for another's lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;
use crate::world::*;
use http::Request;
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_key_when_it_is_free() {
    let (world, inside, gate) = (
        World::new(),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let layer = world.builder().wait(30 * SEC).build().unwrap();
    let service = layer.layer(at_gate(&inside, &gate));
    let first = tokio::spawn(service.clone().oneshot(request("/accounts/a")));
    inside.notified().await;
    let waiter = {
        let layer = layer.clone();
        tokio::spawn(async move { ask(&layer).await })
    };
    tokio::time::sleep(20 * SEC).await;
    assert!(!waiter.is_finished());
    gate.notify_waiters();
    assert_eq!(refusal(first.await.unwrap().unwrap()).await, ran());
    let start = Instant::now();
    assert_eq!(waiter.await.unwrap(), ran());
    assert_eq!(start.elapsed(), Duration::ZERO, "it was not woken");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gives_up_in_time() {
    let (world, inside, gate) = (
        World::new(),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let layer = world.builder().wait(3 * SEC).build().unwrap();
    let first = tokio::spawn(
        layer
            .layer(at_gate(&inside, &gate))
            .oneshot(request("/accounts/a")),
    );
    inside.notified().await;
    let start = Instant::now();
    let response = call(&layer.layer(tower::service_fn(ok)), "/accounts/a").await;
    assert_eq!(start.elapsed(), 3 * SEC);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(refusal(response).await, refused(503, "wait-timeout"));
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn many_waiters_for_one_key_run_one_at_a_time() {
    let world = World::new();
    let layer = world.builder().wait(60 * SEC).build().unwrap();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let service = layer.layer(tower::service_fn({
        let (now, most) = (now.clone(), most.clone());
        move |req: Request<()>| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                ok(req).await
            }
        }
    }));
    let calls = (0..50).map(|_| call(&service, "/accounts/a"));
    for response in
        futures_util::future::join_all(calls.map(|call| async { refusal(call.await).await })).await
    {
        assert_eq!(response, ran());
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn one_waiter_too_many_is_refused_at_once_and_a_place_comes_back() {
    let (world, inside, gate) = (
        World::new(),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let builder = world.builder().wait(30 * SEC).max_waiters(1);
    let layer = builder.build().unwrap();
    let asks = || {
        let layer = layer.clone();
        tokio::spawn(async move { ask(&layer).await })
    };
    let service = layer.layer(at_gate(&inside, &gate));
    let first = tokio::spawn(service.oneshot(request("/accounts/a")));
    inside.notified().await;
    let waiter = asks();
    settle().await;
    let start = Instant::now();
    assert_eq!(ask(&layer).await, refused(503, "overloaded"));
    assert_eq!(start.elapsed(), Duration::ZERO);

    waiter.abort();
    let waiter = asks();
    settle().await;
    gate.notify_waiters();
    assert_eq!(refusal(first.await.unwrap().unwrap()).await, ran());
    assert_eq!(waiter.await.unwrap(), ran());
}
