//! What the stage board shows of leases.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use crate::world::*;
use http::Request;
use tokio::sync::Notify;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_stage::{Board, Cause, Filter, StageLayer, WaitReason};

#[tokio::test(start_paused = true)]
async fn the_board_shows_who_waits_for_a_lease_and_what_was_refused() {
    let (world, board) = (World::new(), Board::new());
    let (inside, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (inside, gate) = (inside.clone(), gate.clone());
        tower::service_fn(move |req: Request<()>| {
            let (inside, gate) = (inside.clone(), gate.clone());
            async move {
                inside.notify_one();
                gate.notified().await;
                ok(req).await
            }
        })
    };
    let layer = world.builder().wait(5 * SEC).build().unwrap();
    let service = ServiceBuilder::new()
        .layer(StageLayer::new(board.clone()))
        .service(layer.layer(handler));
    let holder = tokio::spawn(service.clone().oneshot(request("/accounts/a")));
    inside.notified().await;
    let waiter = tokio::spawn(service.oneshot(request("/accounts/a")));
    tokio::time::sleep(SEC).await;

    let waits: Vec<_> = board
        .live(&Filter::new())
        .iter()
        .filter_map(|row| row.wait().cloned())
        .collect();
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert_eq!(waits[0].reason, WaitReason::Lease);
    assert!(
        waits[0].blocker.to_string().starts_with("lease "),
        "{waits:?}"
    );

    assert_eq!(waiter.await.unwrap().unwrap().status(), 503);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let rejected = board.recent(&Filter::new().outcome(Cause::Rejected));
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    gate.notify_waiters();
    let response = holder.await.unwrap().unwrap();
    assert_eq!(text(response.into_body()).await, "ran");
    assert!(board.live(&Filter::new()).is_empty());
}
