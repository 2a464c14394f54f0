//! The laws of the lease layer, in paused time on one thread.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response};
use support::world::*;
use support::*;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_claim::http::{Gate, Mode, Switch};
use tower_claim::store::State;
use tower_claim::testing::{Fault, Operation};
use tower_claim::{ClaimAdmin, MemoryFenceStore};
use tower_lease_guard::{FenceError, Lease, LeaseGuardLayer, Loss, Renewal, StampLayer};

type Answer = Result<Response<TestBody>, Infallible>;

/// A handler that says when it is inside and stays there until it is let go.
fn at_gate(
    inside: &Arc<Notify>,
    gate: &Arc<Notify>,
) -> impl Service<Request<()>, Response = Response<TestBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let (inside, gate) = (inside.clone(), gate.clone());
    tower::service_fn(move |_: Request<()>| {
        let (inside, gate) = (inside.clone(), gate.clone());
        async move {
            inside.notify_one();
            gate.notified().await;
            Ok(Response::new(full("ran")))
        }
    })
}

fn hangs(
    log: &Log,
) -> impl Service<Request<()>, Response = Response<TestBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ use<> {
    let log = log.clone();
    tower::service_fn(move |_: Request<()>| {
        let gone = OnDrop(log.clone(), "work gone");
        async move {
            let _gone = gone;
            std::future::pending::<Answer>().await
        }
    })
}

// --- who holds ---------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_second_request_on_the_same_thread_is_refused() {
    let (world, inside, gate) = (
        World::new(),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let layer = world.layer();
    let service = layer.layer(at_gate(&inside, &gate));
    let first = tokio::spawn(service.clone().oneshot(request("/accounts/a")));
    inside.notified().await;

    let response = call(&service, "/accounts/a").await;
    assert_eq!(response.headers()["retry-after"], "10");
    let body = text(response.into_body()).await;
    assert!(
        body.contains("\"code\":\"leased\"") && body.contains("held by lease "),
        "{body}"
    );

    let other = tokio::spawn(service.clone().oneshot(request("/accounts/b")));
    inside.notified().await;
    gate.notify_waiters();
    assert_eq!(refusal(first.await.unwrap().unwrap()).await, ran());
    assert_eq!(refusal(other.await.unwrap().unwrap()).await, ran());
    assert_eq!(ask(&layer).await, ran());
}

#[tokio::test(start_paused = true)]
async fn a_nested_call_for_a_held_key_is_refused_at_once_and_by_name() {
    let world = World::new();
    // It would wait for itself.
    let layer = world.builder().wait(30 * SEC).build().unwrap();
    let nested = layer.layer(tower::service_fn(ok));
    let service = layer.layer(tower::service_fn(move |_: Request<()>| {
        let nested = nested.clone();
        async move {
            let same = refusal(call(&nested, "/accounts/a").await).await;
            let other = refusal(call(&nested, "/accounts/b").await).await;
            Ok::<_, Infallible>(Response::new(full(format!("{same:?} {other:?}"))))
        }
    }));
    let start = Instant::now();
    let seen = text(call(&service, "/accounts/a").await.into_body()).await;
    assert_eq!(
        seen,
        format!("{:?} {:?}", refused(423, "leased-by-caller"), ran())
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn one_layer_value_around_a_request_twice_takes_one_lease() {
    let world = World::new();
    let layer = world.layer();
    let service = layer.layer(
        layer.layer(tower::service_fn(|req: Request<()>| async move {
            let lease = lease_of(&req);
            assert!(lease.outer().is_none());
            Ok::<_, Infallible>(Response::new(full(lease.token().to_string())))
        })),
    );
    let response = service.oneshot(request("/accounts/a")).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(world.faults.calls().of(Operation::Claim), 1);
}

#[tokio::test(start_paused = true)]
async fn another_layer_that_asks_for_a_held_key_is_refused() {
    let world = World::new();
    let (outer, inner) = (world.layer(), world.layer());
    let service = outer.layer(inner.layer(tower::service_fn(ok)));
    let response = service.oneshot(request("/accounts/a")).await.unwrap();
    assert_eq!(refusal(response).await, refused(423, "leased-by-caller"));
    assert_eq!(ask(&outer).await, ran());
}

#[tokio::test(start_paused = true)]
async fn leases_of_two_layers_are_found_by_resource() {
    let world = World::new();
    let outer = LeaseGuardLayer::builder(world.store.clone(), |_: &http::request::Parts| "room")
        .clock(world.clock.clone())
        .run_on(tower_claim::RunOn::Task)
        .build()
        .unwrap();
    let service = outer.layer(world.layer().layer(tower::service_fn(
        |req: Request<()>| async move {
            let lease = lease_of(&req);
            let room = lease.find("room").unwrap();
            assert_eq!(lease.resources().collect::<Vec<_>>(), ["a"]);
            assert_eq!(room.fence().resource(), "room");
            assert_ne!(room.nonce(), lease.nonce());
            assert!(lease.find("b").is_none() && lease.fence_for("room").is_none());
            Ok::<_, Infallible>(Response::new(full("ran")))
        },
    )));
    let response = service.oneshot(request("/accounts/a")).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_touches_nothing() {
    let world = World::new();
    let service = world
        .layer()
        .layer(tower::service_fn(|req: Request<()>| async move {
            assert!(req.extensions().is_empty());
            ok(req).await
        }));
    assert_eq!(refusal(call(&service, "/elsewhere").await).await, ran());
    assert_eq!(world.faults.calls().total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_names_nothing_is_refused_and_stores_nothing() {
    let world = World::new();
    let service = world.layer().layer(tower::service_fn(ok));
    for bad in ["", &"x".repeat(256)] {
        let response = call(&service, &format!("/accounts/{bad}")).await;
        assert_eq!(refusal(response).await, refused(400, "key-invalid"));
    }
    assert_eq!(world.faults.calls().total(), 0);
}

// --- the handle --------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn each_lease_has_a_larger_token_and_a_nonce_of_its_own() {
    let world = World::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = world.layer().layer(tower::service_fn({
        let seen = seen.clone();
        move |req: Request<()>| {
            let lease = lease_of(&req);
            assert_eq!(lease.check(), Ok(()));
            assert_eq!(lease.fence().token(), lease.token());
            seen.lock().unwrap().push((lease.token(), lease.nonce()));
            ok(req)
        }
    }));
    for _ in 0..20 {
        assert_eq!(refusal(call(&service, "/accounts/a").await).await, ran());
    }
    let seen = seen.lock().unwrap();
    assert!(
        seen.is_sorted_by(|a, b| a.0 < b.0 && a.1 != b.1),
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_to_another_service_carries_the_fencing_token() {
    let world = World::new();
    let client = StampLayer::new().layer(tower::service_fn(|req: Request<()>| async move {
        let lines: Vec<_> = req.headers().get_all("fencing-token").iter().collect();
        Ok::<_, Infallible>(format!("{lines:?}"))
    }));
    let service = world
        .layer()
        .layer(tower::service_fn(move |req: Request<()>| {
            let client = client.clone();
            async move {
                let lease = lease_of(&req);
                let mut out = request("/ledger/a");
                let stale = format!("a;t=1;o={}", "0".repeat(32));
                for line in [stale.as_str(), "b;t=1;o=000102030405060708090a0b0c0d0e0f"] {
                    out.headers_mut()
                        .append("fencing-token", line.parse().unwrap());
                }
                out.extensions_mut().insert(lease.clone());
                let seen = client.clone().oneshot(out).await.unwrap();
                assert_eq!(
                    seen,
                    format!(
                        "[\"b;t=1;o=000102030405060708090a0b0c0d0e0f\", \"{}\"]",
                        lease.fence()
                    )
                );
                let plain = client.oneshot(request("/")).await.unwrap();
                assert_eq!(plain, "[]");
                ok(req).await
            }
        }));
    assert_eq!(refusal(call(&service, "/accounts/a").await).await, ran());
}

// --- losing it ---------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn without_renewal_the_work_is_gone_before_the_lease_can_lapse() {
    let (world, log) = (World::new(), Log::default());
    let layer = world.builder().renewal(Renewal::Off).build().unwrap();
    let start = Instant::now();
    let response = call(&layer.layer(hangs(&log)), "/accounts/a").await;
    assert_eq!(refusal(response).await, refused(409, "lease-lost/expired"));
    assert!(
        start.elapsed() < LEASE,
        "cancelled after {:?}",
        start.elapsed()
    );
    assert_eq!(log.lines(), ["work gone"]);

    // It is not released: what the work left behind somewhere may still be running.
    let lost = world.record("a").await.unwrap();
    assert_eq!(lost.state, State::Held);
    assert_eq!(ask(&layer).await, refused(423, "leased"));
    tokio::time::sleep_until(start + LEASE + SEC).await;
    assert_eq!(ask(&layer).await, ran());
    assert!(world.record("a").await.unwrap().token > lost.token);
}

#[tokio::test(start_paused = true)]
async fn with_renewal_work_may_take_longer_than_the_lease() {
    let world = World::new();
    let service = world
        .layer()
        .layer(tower::service_fn(|req: Request<()>| async move {
            tokio::time::sleep(6 * LEASE).await;
            lease_of(&req).check().unwrap();
            ok(req).await
        }));
    assert_eq!(refusal(call(&service, "/accounts/a").await).await, ran());
}

#[tokio::test(start_paused = true)]
async fn no_hold_outlives_max_hold() {
    let (world, log) = (World::new(), Log::default());
    let layer = world.builder().max_hold(3 * LEASE).build().unwrap();
    let start = Instant::now();
    let response = call(&layer.layer(hangs(&log)), "/accounts/a").await;
    assert_eq!(refusal(response).await, refused(409, "lease-lost/expired"));
    assert!(
        (2 * LEASE..=3 * LEASE).contains(&start.elapsed()),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(log.lines(), ["work gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_hung_job_does_not_keep_its_lease() {
    let world = World::new();
    let stall_after = 2 * LEASE;
    let layer = world
        .builder()
        .renewal(Renewal::Progress { stall_after })
        .build()
        .unwrap();
    let service = layer.layer(tower::service_fn(|req: Request<()>| async move {
        lease_of(&req).progress(7);
        std::future::pending::<Answer>().await
    }));
    let start = Instant::now();
    let first = refusal(call(&service, "/accounts/a").await).await;
    assert_eq!(first, refused(409, "lease-lost/stalled"));
    assert!(start.elapsed() <= 3 * LEASE, "{:?}", start.elapsed());

    tokio::time::sleep_until(start + 4 * LEASE).await;
    let next = layer.layer(tower::service_fn(|req: Request<()>| async move {
        let before = lease_of(&req).took_over().cloned().unwrap();
        Ok::<_, Infallible>(Response::new(full(before.progress.to_string())))
    }));
    assert_eq!(
        text(call(&next, "/accounts/a").await.into_body()).await,
        "7"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_moves_keeps_its_lease() {
    let world = World::new();
    let stall_after = 2 * LEASE;
    let layer = world
        .builder()
        .renewal(Renewal::Progress { stall_after })
        .build()
        .unwrap();
    let service = layer.layer(tower::service_fn(|req: Request<()>| async move {
        let lease = lease_of(&req);
        for n in 0..8 {
            lease.progress(n);
            tokio::time::sleep(LEASE).await;
        }
        ok(req).await
    }));
    assert_eq!(refusal(call(&service, "/accounts/a").await).await, ran());
}

#[tokio::test(start_paused = true)]
async fn the_holder_is_told_at_its_deadline_when_the_store_is_cut_off() {
    let (world, log) = (World::new(), Log::default());
    let layer = world.layer();
    let start = Instant::now();
    let faults = world.faults.clone();
    let told = log.clone();
    let service = layer.layer(tower::service_fn(move |req: Request<()>| {
        faults.set(Fault::Down);
        let lost = lease_of(&req).lost();
        let told = told.clone();
        tokio::spawn(async move { told.add(format!("{:?}", lost.await.reason())) });
        std::future::pending::<Answer>()
    }));
    let response = call(&service, "/accounts/a").await;
    assert_eq!(
        refusal(response).await,
        refused(409, "lease-lost/store-unreachable")
    );
    let took = start.elapsed();
    assert!(
        (LEASE * 9 / 10..LEASE).contains(&took),
        "told after {took:?}"
    );
    settle().await;
    assert_eq!(log.lines(), [format!("{:?}", Loss::StoreUnreachable)]);
    assert_eq!(ask(&layer).await, refused(503, "store-unavailable"));
}

#[tokio::test(start_paused = true)]
async fn an_operator_asks_first_and_then_breaks() {
    let (world, inside, log) = (World::new(), Arc::new(Notify::new()), Log::default());
    // A record without cooling may be forgotten by the next beat, and with it who ended the hold.
    let layer = world.builder().cooling(LEASE).build().unwrap();
    let service = layer.layer(tower::service_fn({
        let (inside, log) = (inside.clone(), log.clone());
        move |req: Request<()>| {
            let (inside, log) = (inside.clone(), log.clone());
            async move {
                inside.notify_one();
                lease_of(&req).revoke_requested().await;
                log.add("asked");
                std::future::pending::<Answer>().await
            }
        }
    }));
    let running = tokio::spawn(async move { refusal(call(&service, "/accounts/a").await).await });
    inside.notified().await;
    let record = world.record("a").await.unwrap();
    assert!(
        world
            .store
            .inner()
            .ask_revoke(record.key, record.token)
            .await
            .unwrap()
    );
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(log.lines(), ["asked"]);
    world
        .store
        .inner()
        .break_claim(record.key, record.token)
        .await
        .unwrap();
    assert_eq!(running.await.unwrap(), refused(409, "lease-lost/broken"));
}

#[tokio::test(start_paused = true)]
async fn a_zombie_that_wakes_up_cannot_write() {
    let (world, ledger) = (World::new(), MemoryFenceStore::new());
    let layer = world.builder().renewal(Renewal::Off).build().unwrap();
    let (wake, paused) = oneshot::channel::<()>();
    let paused = Arc::new(Mutex::new(Some(paused)));
    let (result, zombie) = oneshot::channel();
    let result = Arc::new(Mutex::new(Some(result)));
    // The job runs on in a task, as a paused process would.
    let service = layer.layer(tower::service_fn({
        let ledger = ledger.clone();
        move |req: Request<()>| {
            let (lease, ledger) = (lease_of(&req), ledger.clone());
            let (paused, result) = (paused.lock().unwrap().take(), result.lock().unwrap().take());
            tokio::spawn(async move {
                lease.fence().admit(&ledger).await.unwrap();
                let _ = paused.unwrap().await;
                let believes = lease.check();
                let wrote = lease.fence().admit(&ledger).await;
                let _ = result.unwrap().send((lease.token(), believes, wrote));
            });
            std::future::pending::<Answer>()
        }
    }));
    let response = call(&service, "/accounts/a").await;
    assert_eq!(response.status(), 409);
    tokio::time::sleep(LEASE).await;

    let next = layer.layer(tower::service_fn({
        let ledger = ledger.clone();
        move |req: Request<()>| {
            let ledger = ledger.clone();
            async move {
                let lease = lease_of(&req);
                lease.fence().admit(&ledger).await.unwrap();
                Ok::<_, Infallible>(Response::new(full(lease.token().to_string())))
            }
        }
    }));
    let second: u64 = text(call(&next, "/accounts/a").await.into_body())
        .await
        .parse()
        .unwrap();
    wake.send(()).unwrap();
    let (first, believes, wrote) = zombie.await.unwrap();
    assert!(first.get() < second);
    assert_eq!(believes.unwrap_err().reason(), Loss::Expired);
    assert!(
        matches!(wrote, Err(FenceError::Stale { high }) if high.get() == second),
        "{wrote:?}"
    );
}

// --- the end of a lease ------------------------------------------------------------------------------

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

// --- waiting -----------------------------------------------------------------------------------------

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

// --- several keys ------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn several_keys_are_leased_all_or_none_under_one_token() {
    let (world, inside, gate) = (
        World::new(),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let layer = world.builder_many().build().unwrap();
    let first = tokio::spawn(
        layer
            .layer(at_gate(&inside, &gate))
            .oneshot(request("/accounts/b")),
    );
    inside.notified().await;
    let service = layer.layer(tower::service_fn(|req: Request<()>| async move {
        let lease = lease_of(&req);
        let names: Vec<_> = lease.resources().collect();
        assert_eq!(
            names,
            ["c", "a"],
            "as the key function named them, repeats left out"
        );
        assert_eq!(lease.fence().resource(), "c");
        assert_eq!(lease.fence_for("a").unwrap().token(), lease.token());
        ok(req).await
    }));
    assert_eq!(
        refusal(call(&service, "/accounts/a+b").await).await,
        refused(423, "leased")
    );
    assert!(
        world
            .record("a")
            .await
            .is_none_or(|record| record.state == State::Free)
    );
    assert_eq!(
        refusal(call(&service, "/accounts/c+a+c").await).await,
        ran()
    );
    for account in ["a", "c"] {
        assert_eq!(world.record(account).await.unwrap().state, State::Free);
    }
    gate.notify_waiters();
    assert_eq!(refusal(first.await.unwrap().unwrap()).await, ran());
}

#[tokio::test(start_paused = true)]
async fn opposite_orders_of_keys_never_block_each_other() {
    let world = World::new();
    let layer = world.builder_many().wait(300 * SEC).build().unwrap();
    let service = layer.layer(tower::service_fn(|req: Request<()>| async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        ok(req).await
    }));
    let calls = (0..60).map(|i| {
        let (service, path) = (
            service.clone(),
            ["/accounts/a+b", "/accounts/b+a", "/accounts/b+c+a"][i % 3],
        );
        async move { refusal(call(&service, path).await).await }
    });
    let all = tokio::time::timeout(200 * SEC, futures_util::future::join_all(calls));
    for answer in all.await.expect("a deadlock") {
        assert_eq!(answer, ran());
    }
}

// --- the layer ---------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn without_its_store_nothing_runs() {
    let world = World::new();
    let layer = world.layer();
    world.faults.set(Fault::Down);
    assert_eq!(ask(&layer).await, refused(503, "store-unavailable"));
    world.faults.set(Fault::Ok);
    assert_eq!(ask(&layer).await, ran());
}

#[tokio::test(start_paused = true)]
async fn the_gate_limits_the_layer_and_turns_it_off_while_it_runs() {
    let (world, inside, gate) = (
        World::new(),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let switch = Switch::default();
    let layer = world
        .builder()
        .gate(
            Gate::new()
                .methods([http::Method::PUT])
                .switch(switch.clone()),
        )
        .build()
        .unwrap();
    let first = tokio::spawn(
        layer
            .layer(at_gate(&inside, &gate))
            .oneshot(request("/accounts/a")),
    );
    inside.notified().await;
    assert_eq!(ask(&layer).await, refused(423, "leased"));
    for mode in [Mode::Observe, Mode::Off] {
        switch.set(mode);
        assert_eq!(ask(&layer).await, ran(), "{mode:?}");
    }
    switch.set(Mode::On);
    let mut get = request("/accounts/a");
    *get.method_mut() = http::Method::GET;
    let passed = layer
        .layer(tower::service_fn(ok))
        .oneshot(get)
        .await
        .unwrap();
    assert_eq!(refusal(passed).await, ran());
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_observes_does_not_cancel() {
    let world = World::new();
    let gate = Gate::new().switch(Switch::new(Mode::Observe));
    let layer = world
        .builder()
        .renewal(Renewal::Off)
        .gate(gate)
        .build()
        .unwrap();
    let service = layer.layer(tower::service_fn(|req: Request<()>| async move {
        tokio::time::sleep(2 * LEASE).await;
        assert_eq!(lease_of(&req).check().unwrap_err().reason(), Loss::Expired);
        ok(req).await
    }));
    assert_eq!(refusal(call(&service, "/accounts/a").await).await, ran());
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_running_leases_and_refuses_new_ones() {
    let (world, inside, gate) = (
        World::new(),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let layer = world.layer();
    let first = tokio::spawn(
        layer
            .layer(at_gate(&inside, &gate))
            .oneshot(request("/accounts/a")),
    );
    inside.notified().await;
    assert!(!layer.drain(SEC).await);
    assert_eq!(ask(&layer).await, refused(503, "shutting-down"));
    let drained = tokio::spawn({
        let layer = layer.clone();
        async move { layer.drain(60 * SEC).await }
    });
    gate.notify_waiters();
    assert_eq!(refusal(first.await.unwrap().unwrap()).await, ran());
    assert!(drained.await.unwrap());
    assert_eq!(world.record("a").await.unwrap().state, State::Free);
}

#[tokio::test(start_paused = true)]
async fn the_ready_service_is_the_one_that_is_called() {
    let world = World::new();
    let layer = world.layer();
    let mut service = layer.layer(layer.layer(MustBeReady::new(tower::service_fn(ok))));
    for path in ["/accounts/a", "/elsewhere", "/accounts/a", "/accounts/b"] {
        let response = service
            .ready()
            .await
            .unwrap()
            .call(request(path))
            .await
            .unwrap();
        drop(response);
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn under_a_concurrency_limit_every_permit_comes_back() {
    let world = World::new();
    let service = ServiceBuilder::new()
        .layer(world.layer())
        .concurrency_limit(1)
        .service_fn(ok);
    for _ in 0..20 {
        let answered = tokio::time::timeout(SEC, call(&service, "/accounts/a"));
        let response = answered.await.expect("a permit was lost");
        assert_eq!(refusal(response).await, ran());
        drop(service.clone().oneshot(request("/accounts/a")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_is_refused_in_grpc() {
    let (world, inside, gate) = (
        World::new(),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let layer = world.layer();
    let first = tokio::spawn(
        layer
            .layer(at_gate(&inside, &gate))
            .oneshot(request("/accounts/a")),
    );
    inside.notified().await;
    let mut grpc = request("/accounts/a");
    grpc.headers_mut()
        .insert("content-type", "application/grpc".parse().unwrap());
    let response = layer
        .layer(tower::service_fn(ok))
        .oneshot(grpc)
        .await
        .unwrap();
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["grpc-status"]
        ),
        (200, &"10".parse().unwrap())
    );
    first.abort();
}

#[tokio::test]
async fn bad_settings_are_refused_when_built_and_say_the_mend() {
    let world = World::new();
    let zero = Duration::ZERO;
    for (builder, setting) in [
        (world.builder().lease(Duration::from_millis(50)), "lease"),
        (world.builder().lease(zero), "lease"),
        (world.builder().max_hold(zero), "max_hold"),
        (world.builder().wait(zero), "wait"),
        (
            world
                .builder()
                .renewal(Renewal::Progress { stall_after: zero }),
            "renewal: stall_after",
        ),
        (world.builder().namespace(""), "namespace"),
        (world.builder().namespace("a/b"), "namespace"),
        (world.builder().namespace("x".repeat(65)), "namespace"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.setting(), setting, "{error}");
    }
}

#[test]
fn a_layer_whose_keeper_is_a_task_is_refused_outside_of_a_runtime() {
    let store = tower_claim::MemoryStore::new();
    let builder = LeaseGuardLayer::builder(store, account).run_on(tower_claim::RunOn::Task);
    assert_eq!(builder.build().unwrap_err().setting(), "run_on");
}
