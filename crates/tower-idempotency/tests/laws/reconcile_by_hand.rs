//! Lapsed runs that wait for their hook, and an operator who knows what became of them.

use http::Response;
use tower_claim::store::Resolved;
use tower_claim::testing::{Fault, Operation};
use tower_claim::{LapsePolicy, Renewal};
use tower_idempotency::{
    Explanation, IdempotencyBuilder, IdempotencyLayer, Operator, UnknownOutcome,
};

use crate::reconcile::{Books, Says, crash, under};
use crate::support::*;

struct Desk {
    app: App,
    books: Books,
    layer: IdempotencyLayer,
    service: Service,
    operator: Operator,
    ask: Ask,
}

/// A run has crashed, and the hook was asked in vain.
async fn waiting(then: impl IntoIterator<Item = Says>) -> Desk {
    waiting_under(then, |builder| builder).await
}

async fn waiting_under(
    then: impl IntoIterator<Item = Says>,
    set: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
) -> Desk {
    let app = App::new();
    let books = Books::saying([Says::NotYet].into_iter().chain(then));
    let layer = set(under(&app, &books)).build().unwrap();
    let desk = Desk {
        service: app.under(&layer),
        operator: layer.operator(app.store.inner().clone()),
        ask: post("/orders").key("k"),
        layer,
        books,
        app,
    };
    crash(&desk.app, &desk.ask).await;
    let not_yet = desk.ask.send(&desk.service).await;
    not_yet.assert_refused(409, "outcome-unknown");
    desk
}

impl Desk {
    async fn seen(&self) -> UnknownOutcome {
        let mut seen = self.operator.unknown(None).await.unwrap().outcomes;
        assert_eq!(seen.len(), 1);
        assert!(seen[0].waits_for_hook);
        seen.remove(0)
    }

    async fn explain(&self) -> Explanation {
        let key = self.operator.key_of(&self.ask.request().into_parts().0);
        self.operator.explain(key.unwrap()).await.unwrap()
    }

    fn start(&self) -> tokio::task::JoinHandle<Answer> {
        let (ask, service) = (self.ask.clone(), self.service.clone());
        tokio::spawn(async move { ask.send(&service).await })
    }
}

fn by_hand() -> Response<bytes::Bytes> {
    Response::new("by hand".into())
}

#[track_caller]
fn assert_resolved(resolved: Resolved, above: &UnknownOutcome) {
    match resolved {
        Resolved::Resolved { token } => assert!(token > above.token && token > above.hook_token),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_conflict(resolved: Resolved) {
    assert!(
        matches!(resolved, Resolved::Conflict { .. }),
        "{resolved:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_by_hand_goes_before_the_hook() {
    let desk = waiting([]).await;
    let seen = desk.seen().await;
    let resolved = desk.operator.resolve_with(&seen, by_hand()).await.unwrap();
    assert_resolved(resolved, &seen);
    for _ in 0..3 {
        let replay = desk.ask.send(&desk.service).await;
        assert!(replay.is_replay());
        assert_eq!(replay.text(), "by hand");
    }
    assert_eq!((desk.app.effects(), desk.books.asked()), (1, 1));
    let explained = desk.explain().await;
    assert!(matches!(explained, Explanation::Done { .. }), "{explained}");
    assert!(
        desk.operator
            .unknown(None)
            .await
            .unwrap()
            .outcomes
            .is_empty()
    );
    // Once is enough.
    assert_conflict(desk.operator.run_again(&seen).await.unwrap());
    assert_eq!(desk.ask.send(&desk.service).await.text(), "by hand");
}

#[tokio::test(start_paused = true)]
async fn work_that_is_done_by_hand_is_told_of_without_the_hook() {
    let desk = waiting([]).await;
    let seen = desk.seen().await;
    assert_resolved(desk.operator.resolve_done(&seen).await.unwrap(), &seen);
    let told = desk.ask.send(&desk.service).await;
    told.assert_refused(409, "response-not-kept");
    assert_eq!((desk.app.effects(), desk.books.asked()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_may_run_again_by_hand_runs_once_and_without_the_hook() {
    let desk = waiting([]).await;
    let seen = desk.seen().await;
    assert_resolved(desk.operator.run_again(&seen).await.unwrap(), &seen);
    let explained = desk.explain().await;
    assert!(matches!(explained, Explanation::NeverSeen), "{explained}");
    let ran = desk.ask.send(&desk.service).await;
    ran.assert_fresh(201);
    desk.ask.send(&desk.service).await.assert_replay_of(&ran);
    assert_eq!((desk.app.effects(), desk.books.asked()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_being_asked_goes_before_the_operator() {
    let desk = waiting([Says::DoneLate("booked")]).await;
    let seen = desk.seen().await;
    let asking = desk.start();
    tokio::time::sleep(ms(500)).await;
    assert_eq!(desk.books.asked(), 2);
    assert_conflict(desk.operator.resolve_with(&seen, by_hand()).await.unwrap());
    assert_conflict(desk.operator.run_again(&seen).await.unwrap());
    assert!(
        desk.operator
            .unknown(None)
            .await
            .unwrap()
            .outcomes
            .is_empty()
    );
    assert_eq!(asking.await.unwrap().text(), "booked");
    assert_conflict(desk.operator.run_again(&seen).await.unwrap());
    assert_eq!(desk.ask.send(&desk.service).await.text(), "booked");
    assert_eq!(desk.app.effects(), 1);
}

/// Whoever is first: what was said first is told to all, and the other knows that it was not heard.
#[tokio::test(start_paused = true)]
async fn of_a_hook_and_an_operator_at_once_one_is_heard() {
    let (mut by_operator, mut by_hook) = (0, 0);
    for head_start in 0..12 {
        let desk = waiting([Says::Done("booked")]).await;
        let seen = desk.seen().await;
        for operation in [Operation::Claim, Operation::Finish] {
            desk.app
                .store
                .faults()
                .set_for(operation, Fault::Delay(ms(3)));
        }
        let repeat = desk.start();
        tokio::time::sleep(ms(head_start)).await;
        let resolved = desk.operator.resolve_with(&seen, by_hand()).await.unwrap();
        repeat.await.unwrap();
        let told = desk.ask.send(&desk.service).await;
        if let Resolved::Resolved { .. } = resolved {
            assert_eq!(told.text(), "by hand", "{head_start} ms");
            assert_eq!(desk.books.asked(), 1, "asked beside the operator");
            by_operator += 1;
        } else {
            assert_eq!(told.text(), "booked", "{head_start} ms");
            by_hook += 1;
        }
        assert_eq!(desk.app.effects(), 1);
    }
    assert!(by_operator > 0 && by_hook > 0, "{by_operator} {by_hook}");
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_since_an_operator_looked_is_not_resolved_unseen() {
    // The hook lets the handler run, and that fails.
    let desk = waiting([Says::Again]).await;
    let seen = desk.seen().await;
    let failed = desk.ask.clone().flags("commit&panic");
    let failed = failed.send(&desk.service).await;
    failed.assert_refused(500, "handler-panicked");
    assert_conflict(desk.operator.run_again(&seen).await.unwrap());
    assert_conflict(desk.operator.resolve_with(&seen, by_hand()).await.unwrap());
    let now = desk.seen().await;
    assert!(now.hook_token > seen.hook_token);
    assert_resolved(desk.operator.resolve_done(&now).await.unwrap(), &now);
    assert_eq!(desk.app.effects(), 2);
}

/// A process that asked the hook and was paused is a lapsed run like any other: what it hears then, or does, is not kept.
#[tokio::test(start_paused = true)]
async fn who_lapsed_while_the_hook_was_asked_is_resolved_and_not_heard() {
    let desk = waiting_under([Says::DoneLate("booked")], |b| b.renewal(Renewal::Off)).await;
    // What it gives back when its time is up does not arrive.
    let faults = desk.app.store.faults();
    faults.set_for(Operation::Release, Fault::Down);
    let paused = desk.start();
    tokio::time::sleep(ms(300)).await;
    let seen = desk.seen().await;
    assert!(seen.hook_token > seen.token, "it was asked");
    let explained = desk.explain().await;
    assert!(matches!(explained, Explanation::Unknown(of) if of.hook_token == seen.hook_token));
    let resolved = desk.operator.resolve_with(&seen, by_hand()).await.unwrap();
    assert_resolved(resolved, &seen);
    let _ = paused.await.unwrap();
    assert_eq!(desk.ask.send(&desk.service).await.text(), "by hand");
    assert_eq!(desk.app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_of_another_run_is_not_resolved() {
    let desk = waiting([]).await;
    let seen = desk.seen().await;
    let other = post("/orders").key("another");
    crash(&desk.app, &other).await;
    // The record is gone.
    let mut gone = seen.clone();
    gone.key = desk
        .operator
        .key_of(&post("/orders").key("never").request().into_parts().0)
        .unwrap();
    assert_eq!(
        desk.operator.run_again(&gone).await.unwrap(),
        Resolved::Absent
    );
    // Its token is another one.
    let mut stale = seen.clone();
    stale.token = tower_claim::Token::ZERO;
    assert_conflict(desk.operator.run_again(&stale).await.unwrap());
    assert_resolved(desk.operator.run_again(&seen).await.unwrap(), &seen);
}

/// The key is free when its marker ends: nothing is kept for longer where nobody looks.
#[tokio::test(start_paused = true)]
async fn what_is_said_by_hand_is_kept_no_longer_than_the_doubt() {
    let retention = ms(10_000);
    let desk = waiting_under([], |builder| {
        let builder = builder.unfinished_keep(ms(1000)).max_hold(ms(400));
        builder.retention(retention)
    });
    let desk = desk.await;
    tokio::time::sleep(ms(6000)).await;
    let seen = desk.seen().await;
    assert!(seen.forgotten_in < retention, "{seen}");
    desk.operator.resolve_with(&seen, by_hand()).await.unwrap();
    let explained = desk.explain().await;
    let Explanation::Done { keep_left, .. } = explained else {
        panic!("{explained}");
    };
    assert_eq!(keep_left, seen.forgotten_in);
    tokio::time::sleep(seen.forgotten_in - ms(10)).await;
    assert_eq!(desk.ask.send(&desk.service).await.text(), "by hand");
    tokio::time::sleep(ms(20)).await;
    let explained = desk.explain().await;
    assert!(matches!(explained, Explanation::NeverSeen), "{explained}");
}

#[tokio::test(start_paused = true)]
async fn the_layer_of_an_operator_needs_no_hook_of_its_own() {
    let desk = waiting([]).await;
    let bare = desk.app.builder().lease(ms(200)).build().unwrap();
    let operator = bare.operator(desk.app.store.inner().clone());
    let key = operator.key_of(&desk.ask.request().into_parts().0).unwrap();
    let Explanation::Unknown(seen) = operator.explain(key).await.unwrap() else {
        panic!("it waits for the hook of another");
    };
    let resolved = operator.resolve_with(&seen, by_hand()).await.unwrap();
    assert_resolved(resolved, &seen);
    assert_eq!(desk.ask.send(&desk.service).await.text(), "by hand");
    assert_eq!(desk.books.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_operator_who_hangs_up_has_spoken_or_the_hook_is_asked() {
    for polls in 1..12 {
        let desk = waiting([Says::Done("booked")]).await;
        let seen = desk.seen().await;
        for operation in [Operation::Claim, Operation::Finish] {
            desk.app
                .store
                .faults()
                .set_for(operation, Fault::Delay(ms(1)));
        }
        {
            use futures_util::FutureExt;
            let mut call = Box::pin(desk.operator.resolve_with(&seen, by_hand()));
            for _ in 0..polls {
                if (&mut call).now_or_never().is_some() {
                    break;
                }
                tokio::time::sleep(ms(1)).await;
            }
        }
        tokio::time::sleep(ms(5000)).await;
        let told = desk.ask.send(&desk.service).await;
        let spoken = desk.books.asked() == 1;
        assert_eq!(told.text(), if spoken { "by hand" } else { "booked" });
        assert_eq!(desk.app.effects(), 1);
        assert_eq!(desk.layer.in_flight(), 0);
    }
}

#[cfg(feature = "aead")]
#[tokio::test(start_paused = true)]
async fn an_answer_by_hand_is_sealed_like_any_other() {
    let ring = tower_idempotency::KeyRing::new("1", [7; 32]);
    let desk = waiting_under([], |builder| builder.seal_with(ring)).await;
    let seen = desk.seen().await;
    desk.operator.resolve_with(&seen, by_hand()).await.unwrap();
    assert_eq!(desk.ask.send(&desk.service).await.text(), "by hand");
}

/// Not a hook's: an outcome that lies at its own key is resolved there.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_no_hook_was_told_of_is_resolved_as_ever() {
    let app = App::new();
    let layer = app.builder().lease(ms(200)).on_lapse(LapsePolicy::Hold);
    let layer = layer.build().unwrap();
    let ask = post("/orders").key("k");
    crash(&app, &ask).await;
    let operator = layer.operator(app.store.inner().clone());
    let seen = operator.unknown(None).await.unwrap().outcomes.remove(0);
    assert!(!seen.waits_for_hook);
    assert_eq!(seen.hook_token, tower_claim::Token::ZERO);
    assert_resolved(operator.run_again(&seen).await.unwrap(), &seen);
    ask.send(&app.under(&layer)).await.assert_fresh(201);
}
