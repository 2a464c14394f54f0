//! When the first run began, told by the replays of whoever answered in the end.

use std::time::UNIX_EPOCH;

use http::Response;
use tower_claim::{LapsePolicy, Renewal};
use tower_idempotency::{IdempotencyLayer, Operator, UnknownOutcome};

use crate::reconcile::{Books, Says, crash, under};
use crate::support::*;

/// A key that was first seen a while ago, by a run that crashed.
struct Scene {
    app: App,
    ask: Ask,
    began: String,
}

impl Scene {
    async fn new() -> Self {
        let app = App::new();
        let began = UNIX_EPOCH + app.clock.unix_time();
        let ask = post("/orders").key("k");
        crash(&app, &ask).await;
        tokio::time::sleep(ms(100_000)).await;
        Self {
            began: httpdate::fmt_http_date(began),
            app,
            ask,
        }
    }

    fn layer(&self, says: impl IntoIterator<Item = Says>) -> (IdempotencyLayer, Service) {
        let layer = under(&self.app, &Books::saying(says)).build().unwrap();
        let service = self.app.under(&layer);
        (layer, service)
    }

    async fn assert_told(&self, service: &Service) {
        tokio::time::sleep(ms(100_000)).await;
        let replay = self.ask.send(service).await;
        self.assert_first_seen(&replay);
    }

    #[track_caller]
    fn assert_first_seen(&self, answer: &Answer) {
        assert!(answer.is_replay(), "{answer:?}");
        assert_eq!(
            answer.headers["idempotency-first-seen"],
            self.began.as_str()
        );
    }

    async fn unknown(&self, operator: &Operator) -> UnknownOutcome {
        operator.unknown(None).await.unwrap().outcomes.remove(0)
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_run_that_was_taken_over() {
    let app = App::new();
    let began = UNIX_EPOCH + app.clock.unix_time();
    let layer = app.builder().lease(ms(200)).renewal(Renewal::Off);
    let service = app.under(&layer.build().unwrap());
    let ask = post("/orders").key("k");
    let lost = ask.clone().flags("delay=100000000").request();
    let first = service.clone();
    tokio::spawn(async move { send(&first, lost).await });
    tokio::time::sleep(ms(100_000)).await;
    let scene = Scene {
        began: httpdate::fmt_http_date(began),
        app,
        ask,
    };
    let over = scene.ask.send(&service).await;
    over.assert_fresh(201);
    scene.assert_told(&service).await;
}

#[tokio::test(start_paused = true)]
async fn of_a_run_that_the_hook_knows_the_answer_of() {
    let scene = Scene::new().await;
    let (_, service) = scene.layer([Says::Done("booked")]);
    let told = scene.ask.send(&service).await;
    scene.assert_first_seen(&told);
    scene.assert_told(&service).await;
}

#[tokio::test(start_paused = true)]
async fn of_a_run_that_another_followed_by_the_word_of_a_hook() {
    let scene = Scene::new().await;
    let (_, service) = scene.layer([Says::NotYet, Says::Again, Says::Again]);
    let not_yet = scene.ask.send(&service).await;
    not_yet.assert_refused(409, "outcome-unknown");
    tokio::time::sleep(ms(100_000)).await;
    let lost = scene.ask.clone().flags("commit&panic").send(&service).await;
    lost.assert_refused(500, "handler-panicked");
    tokio::time::sleep(ms(100_000)).await;
    scene.ask.send(&service).await.assert_fresh(201);
    scene.assert_told(&service).await;
}

#[tokio::test(start_paused = true)]
async fn of_a_run_that_an_operator_resolves_where_the_hook_cannot_tell() {
    for (run_again, asked) in [(true, true), (true, false), (false, true), (false, false)] {
        let scene = Scene::new().await;
        let says = if asked { Says::Unknown } else { Says::NotYet };
        let (layer, service) = scene.layer([says]);
        let operator = layer.operator(scene.app.store.inner().clone());
        let unknown = scene.ask.send(&service).await;
        unknown.assert_refused(409, "outcome-unknown");
        tokio::time::sleep(ms(100_000)).await;
        let unknown = scene.unknown(&operator).await;
        assert_eq!(unknown.hook_asked, asked);
        if run_again {
            operator.run_again(&unknown).await.unwrap();
            scene.ask.send(&service).await.assert_fresh(201);
        } else {
            let answer = Response::new("by hand".into());
            operator.resolve_with(&unknown, answer).await.unwrap();
        }
        scene.assert_told(&service).await;
    }
}

/// The second loss behind the first is led on by a marker of its own.
#[tokio::test(start_paused = true)]
async fn of_the_first_of_two_runs_that_were_lost_one_behind_the_other() {
    let scene = Scene::new().await;
    let (layer, service) = scene.layer([Says::Unknown, Says::Done("booked")]);
    let operator = layer.operator(scene.app.store.inner().clone());
    let _ = scene.ask.send(&service).await;
    operator
        .run_again(&scene.unknown(&operator).await)
        .await
        .unwrap();
    tokio::time::sleep(ms(100_000)).await;
    let lost = scene.ask.clone().flags("commit&panic").send(&service).await;
    lost.assert_refused(500, "handler-panicked");
    tokio::time::sleep(ms(100_000)).await;
    assert_eq!(scene.ask.send(&service).await.text(), "booked");
    scene.assert_told(&service).await;
}

#[tokio::test(start_paused = true)]
async fn of_an_unknown_outcome_that_an_operator_resolves() {
    let scene = Scene::new().await;
    let layer = scene.app.builder().lease(ms(200));
    let layer = layer.on_lapse(LapsePolicy::Hold).build().unwrap();
    let service = scene.app.under(&layer);
    let operator = layer.operator(scene.app.store.inner().clone());
    let unknown = scene.unknown(&operator).await;
    let answer = Response::new("by hand".into());
    operator.resolve_with(&unknown, answer).await.unwrap();
    scene.assert_told(&service).await;
}
