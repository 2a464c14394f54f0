//! How a lease is lost, and what its work sees.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use crate::support::*;
use crate::world::*;
use http::{Request, Response};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_claim::store::State;
use tower_claim::testing::Fault;
use tower_claim::{Attempt, ClaimAdmin, Keeper, MemoryFenceStore, Terms, Token};
use tower_lease_guard::{FenceError, Loss, Renewal};

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
    let layer = world.layer();
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

#[tokio::test(start_paused = true)]
async fn who_was_cut_off_while_another_took_over_is_told_so() {
    let (world, inside, log) = (World::new(), Arc::new(Notify::new()), Log::default());
    let service = world.layer().layer(hangs(&log));
    let service = tower::service_fn({
        let inside = inside.clone();
        move |req: Request<()>| {
            inside.notify_one();
            service.clone().oneshot(req)
        }
    });
    let owner = tokio::spawn(service.oneshot(request("/accounts/a")));
    inside.notified().await;
    settle().await;

    world.faults.set(Fault::Down);
    let (store, record) = (world.store.inner(), world.record("a").await.unwrap());
    store.break_claim(record.key, record.token).await.unwrap();
    let thief = Keeper::builder(store.clone())
        .clock(world.clock.clone())
        .run_on(tower_claim::RunOn::Task)
        .build()
        .unwrap();
    let terms = Terms::builder(LEASE).build().unwrap();
    let stolen = thief.claim(record.key, None, &terms, Token::ZERO).await;
    let Ok(Attempt::Granted(_claim)) = stolen else {
        panic!("{stolen:?}");
    };
    tokio::time::sleep(LEASE / 2).await;
    assert!(!owner.is_finished(), "an outage alone is no loss");
    world.faults.set(Fault::Ok);
    let told = refusal(owner.await.unwrap().unwrap()).await;
    assert_eq!(told, refused(409, "lease-lost/stolen"));
    assert_eq!(log.lines(), ["work gone"]);
}
