//! Answers that an operator drops.

use http::Response;
use tower_claim::store::Purged;
use tower_claim::testing::{Fault, Operation};
use tower_idempotency::{
    Explanation, IdempotencyLayer, ListedState, Operator, SeenRecord, UnknownOutcome,
};

use crate::reconcile::{Books, Says, crash, under};
use crate::support::*;

struct Desk {
    app: App,
    books: Books,
    service: Service,
    operator: Operator,
    ask: Ask,
}

impl Desk {
    fn of(app: App, layer: &IdempotencyLayer, books: Books) -> Self {
        Self {
            service: app.under(layer),
            operator: layer.operator(app.store.inner().clone()),
            ask: post("/orders").key("k"),
            books,
            app,
        }
    }

    fn new() -> Self {
        let app = App::new();
        let layer = app.builder().lease(ms(200)).build().unwrap();
        Self::of(app, &layer, Books::default())
    }

    /// Where the hook says this of a run that has crashed.
    async fn lost(says: impl IntoIterator<Item = Says>) -> Self {
        let (app, books) = (App::new(), Books::saying(says));
        let layer = under(&app, &books).build().unwrap();
        let desk = Self::of(app, &layer, books);
        crash(&desk.app, &desk.ask).await;
        desk
    }

    async fn send(&self) -> Answer {
        self.ask.send(&self.service).await
    }

    async fn explain(&self) -> Explanation {
        let key = self.operator.key_of(&self.ask.request().into_parts().0);
        self.operator.explain(key.unwrap()).await.unwrap()
    }

    async fn seen(&self) -> SeenRecord {
        match self.explain().await {
            Explanation::Done { seen, .. } | Explanation::Unreadable { seen, .. } => seen,
            other => panic!("{other}"),
        }
    }

    async fn unknown(&self) -> UnknownOutcome {
        let unknown = self.operator.unknown(None).await.unwrap();
        unknown.outcomes.into_iter().next().unwrap()
    }

    async fn purge(&self, seen: SeenRecord) -> Purged {
        self.operator.purge(seen).await.unwrap()
    }

    async fn assert_purged(&self, seen: SeenRecord) {
        let purged = self.purge(seen).await;
        assert!(matches!(purged, Purged::Purged { token } if token > seen.token));
        let explained = self.explain().await;
        assert!(matches!(explained, Explanation::NeverSeen), "{explained}");
        assert_eq!(self.purge(seen).await, self.purge(seen).await);
        assert!(!matches!(self.purge(seen).await, Purged::Purged { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_purged_answer_is_gone_and_a_repeat_runs_again() {
    let desk = Desk::new();
    let first = desk.send().await;
    desk.assert_purged(desk.seen().await).await;
    assert!(desk.operator.list(None).await.unwrap().records.is_empty());
    let again = desk.send().await;
    again.assert_fresh(201);
    assert_ne!(first.body, again.body);
    desk.send().await.assert_replay_of(&again);
    assert_eq!(desk.app.effects(), 2);
    // Nothing of it binds.
    desk.assert_purged(desk.seen().await).await;
    let other = desk.ask.clone().body("another").send(&desk.service).await;
    other.assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_not_kept_is_purged_like_any_other() {
    let desk = Desk::new();
    desk.ask
        .clone()
        .flags("size=2000000")
        .send(&desk.service)
        .await;
    desk.send().await.assert_refused(409, "response-not-kept");
    desk.assert_purged(desk.seen().await).await;
    desk.send().await.assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn what_was_listed_is_purged() {
    let desk = Desk::new();
    desk.send().await;
    let listed = desk.operator.list(None).await.unwrap().records.remove(0);
    desk.assert_purged(listed.seen()).await;
    desk.send().await.assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn nothing_newer_is_purged_unseen() {
    let desk = Desk::new();
    desk.send().await;
    let seen = desk.seen().await;
    desk.assert_purged(seen).await;
    tokio::time::sleep(ms(10)).await;
    let newer = desk.send().await;
    assert!(matches!(desk.purge(seen).await, Purged::Conflict { .. }));
    desk.send().await.assert_replay_of(&newer);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_answer_is_not_purged() {
    let listed = async |desk: &Desk, state: fn(ListedState) -> bool| {
        let records = desk.operator.list(None).await.unwrap().records;
        let found = records.into_iter().find(|record| state(record.state));
        found.unwrap().seen()
    };
    let conflict = async |desk: &Desk, seen: SeenRecord| {
        let before = desk.operator.list(None).await.unwrap();
        let purged = desk.purge(seen).await;
        assert!(matches!(purged, Purged::Conflict { token } if token == seen.token));
        assert_eq!(desk.operator.list(None).await.unwrap(), before);
    };

    // A run that is going.
    let desk = Desk::new();
    let running = desk.ask.clone().flags("delay=100000");
    let (service, ask) = (desk.service.clone(), running);
    tokio::spawn(async move { ask.send(&service).await });
    tokio::time::sleep(ms(10)).await;
    conflict(&desk, listed(&desk, |s| s == ListedState::Running).await).await;

    // An outcome that nobody knows.
    let desk = Desk::new();
    let lost = desk.ask.clone().flags("commit&panic");
    lost.send(&desk.service)
        .await
        .assert_refused(500, "handler-panicked");
    conflict(&desk, listed(&desk, |s| s == ListedState::Unknown).await).await;

    // A run that was withdrawn.
    let desk = Desk::new();
    let faults = desk.app.store.faults();
    faults.set_for(Operation::Mark, Fault::Delay(ms(10_000)));
    let doubtful = desk.ask.clone().flags("commit").request();
    let _ = soon(tower::ServiceExt::oneshot(desk.service.clone(), doubtful)).await;
    conflict(&desk, listed(&desk, |s| s == ListedState::Withdrawn).await).await;

    // A marker, before a hook has said anything, and after.
    let desk = Desk::lost([Says::NotYet, Says::Done("booked")]).await;
    desk.send().await.assert_refused(409, "outcome-unknown");
    let leads = |state| matches!(state, ListedState::LeadsOn { .. });
    conflict(&desk, listed(&desk, leads).await).await;
    assert_eq!(desk.send().await.text(), "booked");
    conflict(&desk, listed(&desk, leads).await).await;

    // Nothing.
    let desk = Desk::new();
    let key = desk.operator.key_of(&desk.ask.request().into_parts().0);
    let never = SeenRecord {
        key: key.unwrap(),
        token: tower_claim::Token::ZERO,
    };
    assert_eq!(desk.purge(never).await, Purged::Absent);
}

#[tokio::test(start_paused = true)]
async fn behind_a_hook_a_purged_answer_is_run_again_and_not_asked_for() {
    let desk = Desk::lost([Says::Done("booked")]).await;
    assert_eq!(desk.send().await.text(), "booked");
    for effects in 2..5 {
        desk.assert_purged(desk.seen().await).await;
        let ran = desk.send().await;
        ran.assert_fresh(201);
        desk.send().await.assert_replay_of(&ran);
        assert_eq!((desk.app.effects(), desk.books.asked()), (effects, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_by_hand_is_purged_like_any_other() {
    for asked in [Says::Unknown, Says::NotYet] {
        let desk = Desk::lost([asked]).await;
        desk.send().await.assert_refused(409, "outcome-unknown");
        let unknown = desk.unknown().await;
        let by_hand = Response::new("by hand".into());
        desk.operator.resolve_with(&unknown, by_hand).await.unwrap();
        assert_eq!(desk.send().await.text(), "by hand");
        desk.assert_purged(desk.seen().await).await;
        desk.send().await.assert_fresh(201);
        assert_eq!((desk.app.effects(), desk.books.asked()), (2, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn behind_the_word_of_an_operator_too() {
    let desk = Desk::lost([Says::Unknown]).await;
    desk.send().await.assert_refused(409, "outcome-unknown");
    let unknown = desk.unknown().await;
    desk.operator.run_again(&unknown).await.unwrap();
    desk.send().await.assert_fresh(201);
    desk.assert_purged(desk.seen().await).await;
    desk.send().await.assert_fresh(201);
    assert_eq!((desk.app.effects(), desk.books.asked()), (3, 1));
}

/// However a purge and the repeats that come at that moment fall together: one of them runs, or none.
#[tokio::test(start_paused = true)]
async fn a_purge_lets_one_repeat_run_at_most() {
    let (mut ran, mut asked) = (0, 0);
    for behind_hook in [false, true] {
        for head_start in 0..16 {
            let desk = if behind_hook {
                let says = [Says::Done("booked"), Says::DoneLate("booked again")];
                Desk::lost(says).await
            } else {
                Desk::new()
            };
            desk.send().await;
            let before = desk.app.effects();
            let seen = desk.seen().await;
            let slow = [Operation::Claim, Operation::Finish];
            for operation in slow {
                desk.app
                    .store
                    .faults()
                    .set_for(operation, Fault::Delay(ms(2)));
            }
            let repeats: Vec<_> = (0..8)
                .map(|n| {
                    let ask = desk.ask.clone().flags("delay=50");
                    let service = desk.service.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(ms(n)).await;
                        ask.send(&service).await
                    })
                })
                .collect();
            tokio::time::sleep(ms(head_start)).await;
            desk.purge(seen).await;
            let mut fresh = 0;
            for repeat in repeats {
                let answer = repeat.await.unwrap();
                fresh += u64::from(answer.status == 201 && !answer.is_replay());
            }
            let effects = desk.app.effects() - before;
            assert_eq!(effects, fresh);
            assert!(effects <= 1, "{effects} ran, {head_start}");
            ran += effects;
            asked += desk.books.asked().saturating_sub(1);
        }
    }
    assert!(ran > 0 && asked > 0, "{ran} ran, {asked} asked");
}

/// Where the operator's process dies between the purge and its word, the hook is asked.
#[tokio::test(start_paused = true)]
async fn a_purge_that_breaks_off_behind_a_hook_lets_nothing_run_unasked() {
    let desk = Desk::lost([Says::Done("booked"), Says::Done("booked again")]).await;
    desk.send().await;
    let seen = desk.seen().await;
    desk.app
        .store
        .faults()
        .set_for(Operation::Claim, Fault::Down);
    desk.operator.purge(seen).await.unwrap_err();
    desk.app.store.faults().set(Fault::Ok);
    let explained = desk.explain().await;
    let Explanation::Unknown(unknown) = explained else {
        panic!("{explained}");
    };
    assert!(unknown.waits_for_hook);
    assert_eq!(desk.send().await.text(), "booked again");
    assert_eq!((desk.app.effects(), desk.books.asked()), (1, 2));
}

#[cfg(feature = "aead")]
#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_can_read_any_more_is_purged() {
    let app = App::new();
    let under = |key| {
        let ring = tower_idempotency::KeyRing::new("1", [key; 32]);
        app.builder().seal_with(ring).build().unwrap()
    };
    let first = app.under(&under(1));
    let desk = Desk::of(app.clone(), &under(2), Books::default());
    desk.ask.send(&first).await.assert_fresh(201);
    let explained = desk.explain().await;
    assert!(matches!(explained, Explanation::Unreadable { .. }));
    desk.assert_purged(desk.seen().await).await;
    desk.send().await.assert_fresh(201);
}
