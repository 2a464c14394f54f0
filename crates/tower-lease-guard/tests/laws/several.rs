//! Several keys under one lease.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use crate::world::*;
use http::Request;
use tokio::sync::Notify;
use tower::{Layer, ServiceExt};
use tower_claim::store::State;

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
