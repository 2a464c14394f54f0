//! When a lease ends, and when not.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use crate::world::*;
use futures_util::FutureExt;
use http::{Request, Response};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_claim::store::State;
use tower_claim::testing::{Fault, Operation};
use tower_lease_guard::{Lease, Renewal};

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_released_while_a_task_still_holds_a_clone() {
    let (world, gate) = (World::new(), Arc::new(Notify::new()));
    let layer = world.layer();
    let service = layer.layer(tower::service_fn({
        let gate = gate.clone();
        move |req: Request<()>| {
            let (lease, gate) = (lease_of(&req), gate.clone());
            tokio::spawn(async move {
                gate.notified().await;
                drop(lease);
            });
            ok(req)
        }
    }));
    assert_eq!(refusal(call(&service, "/accounts/a").await).await, ran());
    tokio::time::sleep(3 * LEASE).await;
    assert_eq!(ask(&layer).await, refused(423, "leased"));
    gate.notify_waiters();
    settle().await;
    assert_eq!(ask(&layer).await, ran());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_frees_the_key_only_after_the_work_is_gone() {
    let (world, log, gate) = (World::new(), Log::default(), Arc::new(Notify::new()));
    let layer = world.layer();
    let service = layer.layer(tower::service_fn({
        let (log, gate) = (log.clone(), gate.clone());
        move |req: Request<()>| {
            // Its clean-up takes a while, and keeps the lease.
            let clean_up = CleanUp(Some(lease_of(&req)), gate.clone());
            let gone = OnDrop(log.clone(), "work gone");
            async move {
                let _parts = (gone, clean_up);
                std::future::pending::<Answer>().await
            }
        }
    }));
    let mut running = Box::pin(service.oneshot(request("/accounts/a")));
    while world.record("a").await.is_none() {
        assert!(once(&mut running).await.is_none());
        settle().await;
    }
    drop(running);
    assert_eq!(log.lines(), ["work gone"]);
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(ask(&layer).await, refused(423, "leased"));
    gate.notify_waiters();
    settle().await;
    assert_eq!(ask(&layer).await, ran());
}

struct CleanUp(Option<Lease>, Arc<Notify>);

impl Drop for CleanUp {
    fn drop(&mut self) {
        let (lease, gate) = (self.0.take(), self.1.clone());
        tokio::spawn(async move {
            gate.notified().await;
            drop(lease);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_await_leaves_the_key_free() {
    let world = World::new();
    let layer = world.layer();
    for operation in [Operation::Claim, Operation::Release] {
        world
            .faults
            .set_for(operation, Fault::Delay(Duration::from_millis(3)));
    }
    let service = layer.layer(tower::service_fn(|req: Request<()>| async move {
        tokio::time::sleep(Duration::from_millis(3)).await;
        ok(req).await
    }));
    let make = || {
        let call = service.clone().oneshot(request("/accounts/a"));
        async move { text(call.await.unwrap().into_body()).await }
    };
    let check = |polls: usize| {
        let layer = layer.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(ask(&layer).await, ran(), "dropped after {polls} polls");
        }
        .boxed()
    };
    let polls = dropped_at_every_await(make, check).await;
    assert!(polls > 8, "only {polls} polls: no await was met");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_inner_service_passes_and_frees_the_key() {
    let world = World::new();
    let layer = world.layer();
    let service = layer.layer(tower::service_fn(|_: Request<()>| async {
        Err::<Response<TestBody>, _>("inner")
    }));
    assert_eq!(
        service.oneshot(request("/accounts/a")).await.unwrap_err(),
        "inner"
    );
    assert_eq!(world.record("a").await.unwrap().state, State::Free);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_handler_frees_the_key() {
    let world = World::new();
    let layer = world.layer();
    let service = layer.layer(tower::service_fn(|req: Request<()>| async move {
        assert!(req.uri().path().is_empty(), "a panic on purpose");
        ok(req).await
    }));
    let task = tokio::spawn(service.oneshot(request("/accounts/a")));
    assert!(task.await.unwrap_err().is_panic());
    settle().await;
    assert_eq!(ask(&layer).await, ran());
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_cools_and_a_released_one_does_not() {
    let (world, log) = (World::new(), Log::default());
    let layer = world
        .builder()
        .renewal(Renewal::Off)
        .cooling(5 * SEC)
        .build()
        .unwrap();
    assert_eq!(ask(&layer).await, ran());
    let start = Instant::now();
    let lost = call(&layer.layer(hangs(&log)), "/accounts/a").await;
    assert_eq!(lost.status(), 409);
    tokio::time::sleep_until(start + LEASE + SEC).await;
    assert_eq!(ask(&layer).await, refused(423, "cooling"));
    tokio::time::sleep_until(start + LEASE + 6 * SEC).await;
    assert_eq!(ask(&layer).await, ran());
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_the_key_taken_after_the_work_is_done() {
    let world = World::new();
    let layer = world.builder().min_hold(5 * SEC).build().unwrap();
    let start = Instant::now();
    assert_eq!(ask(&layer).await, ran());
    let response = call(&layer.layer(tower::service_fn(ok)), "/accounts/a").await;
    assert_eq!(response.headers()["retry-after"], "5");
    assert_eq!(refusal(response).await, refused(423, "cooling"));
    tokio::time::sleep_until(start + 5 * SEC).await;
    assert_eq!(ask(&layer).await, ran());
}
