//! The rows of the board, with the feature `stage`.

use http::{Request, Response};
use http_body_util::BodyExt;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt};
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
