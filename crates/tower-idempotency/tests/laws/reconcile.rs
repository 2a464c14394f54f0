//! Lapsed runs whose outcome a hook finds out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::ServiceExt;
use tower_claim::store::{Capabilities, Event, Promise};
use tower_claim::testing::{Fault, Operation};
use tower_claim::{ClaimAdmin, ClaimStore, LapsePolicy, Renewal, RunOn};
use tower_idempotency::{
    Explanation, IdempotencyBuilder, IdempotencyLayer, KeyLookup, LapsedRun, Reconciled,
};

use crate::support::*;

/// What the hook is to say next, and what it was asked.
#[derive(Clone, Default)]
pub(crate) struct Books {
    pub(crate) says: Arc<Mutex<VecDeque<Says>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

#[derive(Clone)]
pub(crate) enum Says {
    Again,
    Done(&'static str),
    Unknown,
    NotYet,
    Panic,
    /// Nothing, for an hour.
    Hang,
    /// That, after a second.
    DoneLate(&'static str),
    /// That the handler is to run, long after the claim of who asks has ended.
    AgainTooLate,
}

#[derive(Debug, PartialEq)]
struct Asked {
    key: String,
    body: Bytes,
    attempt: u32,
    past_return: bool,
}

impl Books {
    pub(crate) fn saying(says: impl IntoIterator<Item = Says>) -> Self {
        Self {
            says: Arc::new(Mutex::new(says.into_iter().collect())),
            asked: Arc::default(),
        }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    async fn look_up(self, lapsed: LapsedRun) -> Reconciled {
        self.asked.lock().unwrap().push(Asked {
            key: lapsed.run().key().as_client_text().unwrap().to_owned(),
            body: lapsed.body().unwrap().clone(),
            attempt: lapsed.run().attempt(),
            past_return: lapsed.was_past_return(),
        });
        let says = self.says.lock().unwrap().pop_front();
        if let Some(Says::DoneLate(_)) = says {
            tokio::time::sleep(ms(1000)).await;
        }
        match says.unwrap() {
            Says::Again => Reconciled::RunAgain,
            Says::Done(text) | Says::DoneLate(text) => {
                let done = Response::builder()
                    .status(202)
                    .header("location", "/orders/7");
                let done = done.header("set-cookie", "a=1");
                Reconciled::Done(done.body(text.into()).unwrap())
            }
            Says::Unknown => Reconciled::Unknown,
            Says::NotYet => Reconciled::NotYet(ms(7000)),
            Says::Panic => panic!("told to"),
            Says::Hang => {
                tokio::time::sleep(ms(3_600_000)).await;
                Reconciled::Unknown
            }
            Says::AgainTooLate => {
                tokio::time::sleep(ms(10_000)).await;
                Reconciled::RunAgain
            }
        }
    }
}

pub(crate) fn under(app: &App, books: &Books) -> IdempotencyBuilder {
    let (books, store) = (books.clone(), app.store.inner().clone());
    app.builder()
        .lease(ms(200))
        .tell_status()
        .reconcile(store, move |lapsed| books.clone().look_up(lapsed))
}

fn service_under(app: &App, books: &Books) -> Service {
    app.under(&under(app, books).build().unwrap())
}

/// A run whose process dies: nothing of it is heard again.
pub(crate) async fn crash(app: &App, ask: &Ask) {
    let layer = app.builder().lease(ms(200)).renewal(Renewal::Off);
    let layer = layer.on_lapse(LapsePolicy::Hold).build().unwrap();
    let service = app.under(&layer);
    let ask = ask.clone().flags("delay=100000000");
    tokio::spawn(async move { ask.send(&service).await });
    tokio::time::sleep(ms(300)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_run_is_asked_about_before_anything_runs_again() {
    let app = App::new();
    let books = Books::saying([Says::Again]);
    let service = service_under(&app, &books);
    let ask = post("/orders").key("k").body("one coffee");
    crash(&app, &ask).await;
    let again = ask.send(&service).await;
    again.assert_fresh(201);
    assert_eq!(again.headers["idempotency-status"], "taken-over");
    assert_eq!(app.effects(), 2);
    let asked = Asked {
        key: "k".to_owned(),
        body: "one coffee".into(),
        attempt: 2,
        past_return: false,
    };
    assert_eq!(*books.asked.lock().unwrap(), [asked]);
    ask.send(&service).await.assert_replay_of(&again);
    assert_eq!((app.effects(), books.asked()), (2, 1), "asked once");
}

#[tokio::test(start_paused = true)]
async fn the_answer_that_the_hook_knows_is_kept_and_replayed() {
    let app = App::new();
    let books = Books::saying([Says::Done("booked")]);
    let layer = under(&app, &books).build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    let told = ask.send(&service).await;
    assert_eq!((told.status.as_u16(), told.text()), (202, "booked"));
    assert_eq!(told.headers["idempotency-status"], "reconciled");
    assert_eq!(told.headers["location"], "/orders/7");
    assert!(told.is_replay(), "by no run of this request");
    assert!(
        !told.headers.contains_key("set-cookie"),
        "as a repeat sees it"
    );
    let replay = ask.send(&service).await;
    replay.assert_replay_of(&told);
    assert_eq!(replay.headers["idempotency-status"], "replayed");
    assert_eq!((app.effects(), books.asked()), (1, 1));
    assert_eq!(layer.counts().reconciled, 1);
}

#[tokio::test(start_paused = true)]
async fn behind_the_point_of_no_return_the_hook_is_asked_too() {
    for lost in ["commit&panic", "commit&error"] {
        let app = App::new();
        let books = Books::saying([Says::Done("booked")]);
        let service = service_under(&app, &books);
        let ask = post("/orders").key("k");
        let _ = soon(tower::ServiceExt::oneshot(
            service.clone(),
            ask.clone().flags(lost).request(),
        ))
        .await;
        assert_eq!(ask.send(&service).await.text(), "booked", "{lost}");
        assert!(books.asked.lock().unwrap()[0].past_return, "{lost}");
        assert_eq!(app.effects(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_tell_stays_unknown_until_an_operator_says() {
    let app = App::new();
    let books = Books::saying([Says::Unknown]);
    let layer = under(&app, &books).build().unwrap();
    let service = app.under(&layer);
    let operator = layer.operator(app.store.inner().clone());
    for (key, run_again) in [("a", true), ("b", false)] {
        books.says.lock().unwrap().push_back(Says::Unknown);
        let ask = post("/orders").key(key);
        crash(&app, &ask).await;
        let (asked, effects) = (books.asked(), app.effects());
        for _ in 0..3 {
            ask.send(&service)
                .await
                .assert_refused(409, "outcome-unknown");
        }
        assert_eq!(books.asked(), asked + 1, "it said that it cannot tell");
        let unknown = operator.unknown(None).await.unwrap().outcomes.remove(0);
        assert!(unknown.hook_asked);
        let at = operator.key_of(&ask.request().into_parts().0).unwrap();
        let explained = operator.explain(at).await.unwrap();
        assert!(matches!(explained, Explanation::Unknown(of) if of.key == unknown.key));
        if run_again {
            operator.run_again(&unknown).await.unwrap();
            // Nothing has begun, nothing is in doubt: who only asks is told to send it.
            let question = Request::get("/keys").header("idempotency-key", key);
            let question = question.body(Full::<Bytes>::default()).unwrap();
            let fate = KeyLookup::new(&layer).oneshot(question).await.unwrap();
            assert_eq!(fate.status(), 404);
            ask.send(&service).await.assert_fresh(201);
            assert_eq!(app.effects(), effects + 1);
        } else {
            let answer = Response::new("by hand".into());
            operator.resolve_with(&unknown, answer).await.unwrap();
            assert_eq!(ask.send(&service).await.text(), "by hand");
            assert_eq!(app.effects(), effects);
        }
        assert!(ask.send(&service).await.is_replay());
        assert_eq!(books.asked(), asked + 1, "the operator's word goes first");
        assert!(operator.unknown(None).await.unwrap().outcomes.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_told_now_is_asked_again() {
    let app = App::new();
    let books = Books::saying([Says::NotYet, Says::Panic, Says::Done("booked")]);
    let service = service_under(&app, &books);
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    let not_yet = ask.send(&service).await;
    not_yet.assert_refused(409, "outcome-unknown");
    assert_eq!(not_yet.retry_after(), Some(7));
    ask.send(&service)
        .await
        .assert_refused(409, "outcome-unknown");
    assert_eq!(ask.send(&service).await.text(), "booked");
    assert_eq!((app.effects(), books.asked()), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn one_hook_is_asked_at_a_time_however_many_repeats_come() {
    let app = App::new();
    let books = Books::saying([Says::Hang]);
    let service = service_under(&app, &books);
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    let repeats: Vec<_> = (0..50)
        .map(|_| {
            let (ask, service) = (ask.clone(), service.clone());
            tokio::spawn(async move { ask.send(&service).await })
        })
        .collect();
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(books.asked(), 1);
    let mut refused = 0;
    for repeat in repeats {
        let answer = soon(repeat).await.unwrap();
        match answer.code() {
            "in-progress" => refused += 1,
            _ => assert_eq!(answer.code(), "outcome-unknown"),
        }
    }
    assert_eq!((refused, app.effects()), (49, 1));
}

/// The hole that a plain takeover would leave: a claim that is given back forgets that there was a run before.
#[tokio::test(start_paused = true)]
async fn a_repeat_that_is_dropped_anywhere_never_lets_another_run_unasked() {
    use futures_util::FutureExt;
    for polls in 1..40 {
        let app = App::new();
        let books = Books::saying([Says::Done("booked"), Says::Done("booked")]);
        let service = service_under(&app, &books);
        let ask = post("/orders").key("k");
        crash(&app, &ask).await;
        {
            app.store
                .faults()
                .set_for(Operation::Claim, Fault::Delay(ms(1)));
            let call = tower::ServiceExt::oneshot(service.clone(), ask.request());
            let mut call = Box::pin(call);
            for _ in 0..polls {
                if (&mut call).now_or_never().is_some() {
                    break;
                }
                tokio::time::sleep(ms(1)).await;
            }
        }
        tokio::time::sleep(ms(5000)).await;
        assert_eq!(ask.send(&service).await.text(), "booked", "after {polls}");
        assert_eq!(app.effects(), 1, "after {polls}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_never_lets_another_run_unasked() {
    let app = App::new();
    let books = Books::saying([Says::Done("booked"), Says::Done("booked")]);
    let service = service_under(&app, &books);
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    app.store
        .faults()
        .set_for(Operation::Claim, Fault::LoseReply(1000));
    ask.send(&service)
        .await
        .assert_refused(503, "store-unavailable");
    app.store.faults().set(Fault::Ok);
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(ask.send(&service).await.text(), "booked");
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_the_hook_allowed_is_asked_about_like_the_first() {
    for lost in ["panic", "commit&panic", "status=503", "commit&error"] {
        let app = App::new();
        let books = Books::saying([Says::Again, Says::Done("booked")]);
        let service = service_under(&app, &books);
        let ask = post("/orders").key("k");
        crash(&app, &ask).await;
        let again = ask.clone().flags(lost).request();
        let _ = soon(tower::ServiceExt::oneshot(service.clone(), again)).await;
        assert_eq!(app.effects(), 2, "{lost}");
        assert_eq!(ask.send(&service).await.text(), "booked", "{lost}");
        assert_eq!(app.effects(), 2, "{lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_is_shut_out_once_the_hook_is_asked() {
    let app = App::new();
    let books = Books::saying([Says::Done("booked")]);
    let layer = under(&app, &books).renewal(Renewal::Off).build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    let late = tokio::spawn({
        let (ask, service) = (ask.clone().flags("delay=1000"), service.clone());
        async move { ask.send(&service).await }
    });
    tokio::time::sleep(ms(300)).await;
    let told = ask.send(&service).await;
    assert_eq!(told.text(), "booked");
    // Its answer is not accepted, and it is not sent as if it were.
    let late = late.await.unwrap();
    assert_eq!(late.code(), "in-progress");
    ask.send(&service).await.assert_replay_of(&told);
    assert_eq!(layer.counts().superseded, 1);
}

#[tokio::test(start_paused = true)]
async fn every_token_is_above_those_of_all_runs_before() {
    let app = App::new();
    let (seen, mut tokens) = tokio::sync::mpsc::unbounded_channel();
    let store = app.store.inner().clone();
    let layer = app
        .builder()
        .lease(ms(200))
        .reconcile(store, move |lapsed| {
            seen.send(lapsed.run().token()).unwrap();
            async { Reconciled::RunAgain }
        });
    let service = app.under(&layer.build().unwrap());
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    let unknown = app
        .store
        .inner()
        .scan(None, 9)
        .await
        .unwrap()
        .records
        .remove(0);
    ask.send(&service).await.assert_fresh(201);
    let token = soon(tokens.recv()).await.unwrap();
    // Resolving raised the first key's token, within the same millisecond of the clock.
    let raised = app
        .store
        .inner()
        .peek(unknown.key)
        .await
        .unwrap()
        .unwrap()
        .token;
    assert!(unknown.token < raised && raised < token);
}

#[tokio::test(start_paused = true)]
async fn another_payload_is_told_so_and_nobody_is_asked() {
    let app = App::new();
    let books = Books::default();
    let service = service_under(&app, &books);
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    let other = ask.body("other").send(&service).await;
    other.assert_refused(422, "key-reused");
    assert_eq!(books.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_layer_without_the_hook_runs_nothing_that_it_should_have_been_asked_about() {
    let app = App::new();
    let books = Books::saying([Says::NotYet]);
    let with = service_under(&app, &books);
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    ask.send(&with).await.assert_refused(409, "outcome-unknown");
    let without = app.service();
    ask.send(&without)
        .await
        .assert_refused(409, "outcome-unknown");
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_repeat_hears_what_the_hook_says() {
    let app = App::new();
    let books = Books::saying([Says::NotYet, Says::Done("booked")]);
    let layer = under(&app, &books).on_busy(tower_idempotency::OnBusy::Wait(ms(5000)));
    let service = app.under(&layer.build().unwrap());
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    let both = futures_util::future::join(ask.send(&service), ask.send(&service)).await;
    both.0.assert_refused(409, "outcome-unknown");
    assert_eq!(both.1.text(), "booked");
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_may_forget_is_not_reconciled_with() {
    let app = App::new();
    let engine = Capabilities::in_process("forgetful");
    let forgetful = engine.with_weakened(Event::Failover, &[Promise::OneResult]);
    let builder = || {
        IdempotencyLayer::builder(app.store.clone().promising(forgetful))
            .clock(app.clock.clone())
            .run_on(RunOn::Task)
            .reconcile(app.store.inner().clone(), |_| async { Reconciled::Unknown })
    };
    let refused = builder().build().unwrap_err();
    assert_eq!(refused.setting(), "reconcile");
    assert!(refused.to_string().contains("another store"), "{refused}");
    builder().trust_forgetful_store().build().unwrap();
}

/// Whoever asks what became of the key is led on, too.
#[tokio::test(start_paused = true)]
async fn a_lookup_sees_what_the_hook_said() {
    use http_body_util::BodyExt;
    let app = App::new();
    let books = Books::saying([Says::NotYet, Says::Done("booked")]);
    let layer = under(&app, &books).build().unwrap();
    let service = app.under(&layer);
    let lookup = tower_idempotency::KeyLookup::new(&layer);
    let ask = post("/orders").key("k");
    let look = async || {
        let question = http::Request::get("/keys").header("idempotency-key", "k");
        let question = question.body(()).unwrap();
        let answer = tower::ServiceExt::oneshot(lookup.clone(), question)
            .await
            .unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    };
    crash(&app, &ask).await;
    assert!(look().await.contains("unknown"));
    ask.send(&service)
        .await
        .assert_refused(409, "outcome-unknown");
    assert!(
        look().await.contains("unknown"),
        "the hook could not tell yet"
    );
    assert_eq!(ask.send(&service).await.text(), "booked");
    assert!(look().await.contains("booked"));
    assert_eq!((app.effects(), books.asked()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_outlasts_its_claim_lets_nothing_run() {
    let app = App::new();
    let books = Books::saying([Says::AgainTooLate, Says::Again]);
    let layer = under(&app, &books).max_hold(ms(1000)).build().unwrap();
    let service = app.under(&layer);
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    let late = tokio::spawn({
        let (ask, service) = (ask.clone(), service.clone());
        async move { ask.send(&service).await }
    });
    tokio::time::sleep(ms(1500)).await;
    assert_eq!(layer.in_flight(), 0, "its place is free, too");
    let again = ask.send(&service).await;
    again.assert_fresh(201);
    assert_eq!((app.effects(), books.asked()), (2, 2));
    late.await.unwrap().assert_refused(409, "outcome-unknown");
    tokio::time::sleep(ms(20_000)).await;
    assert_eq!(app.effects(), 2, "it ran beside the one that took over");
    ask.send(&service).await.assert_replay_of(&again);
}

/// Who asks last, before a marker ends, and runs: its outcome must not be forgotten before its retention has passed.
#[tokio::test(start_paused = true)]
async fn what_ran_behind_a_marker_is_replayed_for_its_whole_retention() {
    let keep = ms(2000);
    for by_operator in [false, true] {
        let (mut asked, mut refused) = (0, 0);
        for wait in (0..12_000).step_by(250) {
            let app = App::new();
            let said = if by_operator {
                Says::Unknown
            } else {
                Says::NotYet
            };
            let books = Books::saying([said, Says::Again, Says::Again, Says::Again]);
            let layer = under(&app, &books).max_hold(ms(1000));
            let layer = layer.retention(ms(1000)).unfinished_keep(keep);
            let layer = layer.build().unwrap();
            let service = app.under(&layer);
            let ask = post("/orders").key("k").flags("delay=900");
            crash(&app, &ask).await;
            let first = ask.send(&service).await;
            first.assert_refused(409, "outcome-unknown");
            if by_operator {
                tokio::time::sleep(keep - ms(100)).await;
                let operator = layer.operator(app.store.inner().clone());
                let unknown = operator.unknown(None).await.unwrap().outcomes.remove(0);
                operator.run_again(&unknown).await.unwrap();
            }
            tokio::time::sleep(ms(wait)).await;
            let ran = ask.send(&service).await;
            if ran.status != 201 {
                ran.assert_refused(409, "outcome-unknown");
                assert_eq!(app.effects(), 1);
                refused += 1;
                continue;
            }
            assert_eq!(app.effects(), 2);
            asked += usize::from(books.asked() == 2);
            for _ in 0..9 {
                let replay = ask.send(&service).await;
                assert_eq!(
                    app.effects(),
                    2,
                    "it ran unasked, {wait} ms after the marker"
                );
                replay.assert_replay_of(&ran);
                tokio::time::sleep(ms(100)).await;
            }
        }
        assert!(refused > 0, "the last moments of a marker");
        assert_eq!(asked > 0, !by_operator);
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_sees_a_run_that_waits_for_its_hook() {
    let app = App::new();
    let books = Books::saying([Says::NotYet, Says::Done("booked")]);
    let layer = under(&app, &books).build().unwrap();
    let service = app.under(&layer);
    let operator = layer.operator(app.store.inner().clone());
    post("/orders")
        .key("other")
        .send(&service)
        .await
        .assert_fresh(201);
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    let not_yet = ask.send(&service).await;
    not_yet.assert_refused(409, "outcome-unknown");
    // Also when nothing is left of the claim under which the hook was asked.
    for pause in [0, 100_000] {
        tokio::time::sleep(ms(pause)).await;
        let key = operator.key_of(&ask.request().into_parts().0).unwrap();
        let explained = operator.explain(key).await.unwrap();
        let Explanation::Unknown(unknown) = explained else {
            panic!("{explained}");
        };
        assert!(unknown.waits_for_hook && !unknown.hook_asked);
        assert_eq!(operator.unknown(None).await.unwrap().outcomes, [unknown]);
    }
    assert_eq!(ask.send(&service).await.text(), "booked");
    assert!(operator.unknown(None).await.unwrap().outcomes.is_empty());
}
