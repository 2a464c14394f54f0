//! The rows of the board, with the feature `stage`.

use http::{Request, Response};
use http_body_util::BodyExt;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};
use tower_claim::testing::Fault;
use tower_idempotency::OnBusy;
use tower_stage::{Board, Filter, StageLayer};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn the_board_shows_waits_refusals_panics_and_the_marks_of_a_detached_handler() {
    let app = App::new();
    let board = Board::builder().clock(app.clock.clone()).build().unwrap();
    let layer = app
        .builder()
        .on_busy(OnBusy::Wait(ms(500)))
        .build()
        .unwrap();
    let inner = app.under(&layer);
    let staged =
        StageLayer::new(board.clone()).layer(tower::service_fn(move |request: Request<_>| {
            let inner = inner.clone();
            async move { inner.oneshot(request).await }
        }));
    let service = BoxCloneSyncService::new(staged);
    let ask = |flags: &str, body: &'static str| {
        let request = post("/orders").key("k").flags(flags).body(body).request();
        let service = service.clone();
        async move {
            let response: Response<_> = soon(service.oneshot(request)).await.unwrap();
            response.into_body().collect().await.unwrap();
        }
    };
    let first = tokio::spawn(ask("mark&delay=200&panic", "{}"));
    tokio::time::sleep(ms(1)).await;
    let waiting = tokio::spawn(ask("", "{}"));
    tokio::time::sleep(ms(1)).await;
    let json = board.json(&Filter::new());
    assert!(json.contains("\"reason\":\"replay\""), "{json}");
    assert!(json.contains("\"stage\":\"persisted\""), "{json}");
    ask("", "other").await;
    let json = board.json(&Filter::new());
    assert!(json.contains("\"outcome\":\"rejected\""), "{json}");
    first.await.unwrap();
    waiting.await.unwrap();
    let json = board.json(&Filter::new());
    assert!(json.contains("\"outcome\":\"panicked\""), "{json}");
    assert!(json.contains("\"live\":[]"), "{json}");
}

#[tokio::test(start_paused = true)]
async fn the_board_shows_who_waits_for_the_store_and_that_a_run_has_begun() {
    let app = App::new();
    let board = Board::builder().clock(app.clock.clone()).build().unwrap();
    let inner = app.service();
    let staged =
        StageLayer::new(board.clone()).layer(tower::service_fn(move |request: Request<_>| {
            let inner = inner.clone();
            async move { inner.oneshot(request).await }
        }));
    app.store.faults().set(Fault::Delay(ms(100)));
    let request = post("/orders").key("k").flags("delay=100").request();
    let began = tokio::time::Instant::now();
    let asked = tokio::spawn(staged.oneshot(request));
    let at = async |millis| {
        tokio::time::sleep_until(began + ms(millis)).await;
        board.json(&Filter::new())
    };
    for (at_ms, reason, blocker) in [(50, true, "claim"), (150, false, ""), (250, true, "finish")] {
        let json = at(at_ms).await;
        assert_eq!(json.contains("\"reason\":\"store\""), reason, "{json}");
        assert!(json.contains(blocker), "{json}");
        let stage = if at_ms == 50 { "received" } else { "validated" };
        assert!(json.contains(&format!("\"stage\":\"{stage}\"")), "{json}");
    }
    let response = asked.await.unwrap().unwrap();
    response.into_body().collect().await.unwrap();
}
