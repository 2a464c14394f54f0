//! The layer as a tower citizen: settings, gate, readiness, shutdown.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use crate::world::*;
use http::Request;
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_claim::http::{Gate, Mode, Switch};
use tower_claim::store::State;
use tower_claim::testing::Fault;
use tower_lease_guard::{LeaseGuardLayer, Loss, Renewal};

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
        (world.builder().max_waiters(0), "max_waiters"),
        (world.builder().max_waiters(usize::MAX), "max_waiters"),
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
