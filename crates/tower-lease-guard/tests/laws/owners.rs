//! Who holds: one request at a time, and none twice.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::*;
use crate::world::*;
use http::{Request, Response};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_claim::testing::Operation;
use tower_lease_guard::{LeaseGuardLayer, Renewal};

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

#[tokio::test(start_paused = true)]
async fn a_call_that_carries_a_copy_of_the_extensions_is_refused_also_from_a_task() {
    let world = World::new();
    let layer = world.layer();
    let nested = layer.layer(tower::service_fn(ok));
    let service = layer.layer(tower::service_fn(move |req: Request<()>| {
        let nested = nested.clone();
        async move {
            let carrying = || {
                let mut request = request("/accounts/a");
                request.extensions_mut().clone_from(req.extensions());
                nested.clone().oneshot(request)
            };
            let inside = refusal(carrying().await.unwrap()).await;
            let task = refusal(tokio::spawn(carrying()).await.unwrap().unwrap()).await;
            Ok::<_, Infallible>(Response::new(full(format!("{inside:?} {task:?}"))))
        }
    }));
    let seen = text(call(&service, "/accounts/a").await.into_body()).await;
    let by_name = refused(423, "leased-by-caller");
    assert_eq!(seen, format!("{by_name:?} {by_name:?}"));
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_lost_lease_holds_nothing() {
    let world = World::new();
    let layer = world.builder().renewal(Renewal::Off).build().unwrap();
    let copy = Arc::new(Mutex::new(None));
    let service = layer.layer(tower::service_fn({
        let copy = copy.clone();
        move |req: Request<()>| {
            *copy.lock().unwrap() = Some(req.extensions().clone());
            std::future::pending::<Answer>()
        }
    }));
    assert_eq!(call(&service, "/accounts/a").await.status(), 409);
    let again = {
        let mut request = request("/accounts/a");
        *request.extensions_mut() = copy.lock().unwrap().take().unwrap();
        request
    };
    tokio::time::sleep(LEASE).await;
    let nested = layer.layer(tower::service_fn(|req: Request<()>| async move {
        assert_eq!(
            lease_of(&req).check(),
            Ok(()),
            "it works under a lease of its own"
        );
        ok(req).await
    }));
    assert_eq!(refusal(nested.oneshot(again).await.unwrap()).await, ran());
}
