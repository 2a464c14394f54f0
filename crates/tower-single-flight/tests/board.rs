//! What the stage board shows of a flight.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::*;
use http_body_util::BodyExt;
use tokio::time::sleep;
use tower::{Layer, ServiceExt};
use tower_stage::{Board, Cause, Filter, Stage, StageLayer};

#[test]
fn followers_show_whom_they_wait_for_and_the_leader_its_own_marks() {
    paused(async {
        let board = Board::new();
        let app = App::of(builder().build().unwrap(), |_, _| async {
            tower_stage::mark(Stage::UpstreamCalled);
            sleep(100 * MS).await;
            tower_stage::mark(Stage::Persisted);
            sleep(100 * MS).await;
            Ok(ok("x"))
        });
        let staged = StageLayer::new(board.clone()).layer(app.service.clone());
        let callers: Vec<_> = (0..3)
            .map(|_| tokio::spawn(staged.clone().oneshot(get("/x"))))
            .collect();
        for (at, stage) in [(50, Stage::UpstreamCalled), (100, Stage::Persisted)] {
            sleep(at * MS).await;
            let rows = board.live(&Filter::new());
            let (waiting, leading): (Vec<_>, Vec<_>) =
                rows.iter().partition(|r| r.wait().is_some());
            assert_eq!((waiting.len(), leading.len()), (2, 1));
            assert_eq!(leading[0].stage(), stage, "its own marks, in the task too");
            for row in waiting {
                let wait = row.wait().unwrap();
                assert_eq!(wait.reason.name(), "flight");
                assert_eq!(wait.blocker.to_string(), leading[0].id().to_string());
            }
        }
        for caller in callers {
            drop(caller.await.unwrap().unwrap());
        }
        assert!(board.live(&Filter::new()).is_empty());
    });
}

#[test]
fn a_panicked_flight_and_a_refused_follower_end_as_that() {
    paused(async {
        let board = Board::new();
        let app = App::new(|_, _| panic!("in the handler"));
        let staged = StageLayer::new(board.clone()).layer(app.service.clone());
        let callers = (0..3).map(|_| tokio::spawn(staged.clone().oneshot(get("/x"))));
        for caller in futures_util::future::join_all(callers).await {
            drop(caller.unwrap().unwrap());
        }
        let ended = board.recent(&Filter::new());
        let panicked = ended
            .iter()
            .filter(|row| row.outcome().cause == Cause::Panicked);
        assert_eq!(panicked.count(), 3);

        let board = Board::new();
        let layer = builder()
            .flight_wait(5 * MS)
            .extra_leaders(0)
            .build()
            .unwrap();
        let app = App::with(layer, |_, _| ok("x"));
        let staged = StageLayer::new(board.clone()).layer(app.service.clone());
        let callers = (0..2).map(|_| tokio::spawn(staged.clone().oneshot(get("/x"))));
        for caller in futures_util::future::join_all(callers).await {
            let response = caller.unwrap().unwrap();
            response.into_body().collect().await.unwrap();
        }
        let ended = board.recent(&Filter::new());
        let rejected = ended
            .iter()
            .filter(|row| row.outcome().cause == Cause::Rejected);
        assert_eq!(rejected.count(), 1);
    });
}
