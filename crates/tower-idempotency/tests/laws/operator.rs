//! The operator's side.

use http::Response;
use tower_claim::store::Resolved;
use tower_claim::testing::{Fault, Operation};
use tower_claim::{ClaimStore, LapsePolicy, Namespace, Renewal, Settings, Use};
use tower_idempotency::{
    Explanation, IdempotencyLayer, ListedRecord, ListedState, Operator, Reconciled,
};

use crate::support::*;

struct Desk {
    app: App,
    layer: IdempotencyLayer,
    service: Service,
    operator: Operator,
}

fn desk() -> Desk {
    let app = App::new();
    let layer = app.builder().lease(ms(200)).build().unwrap();
    Desk {
        service: app.under(&layer),
        operator: layer.operator(app.store.inner().clone()),
        layer,
        app,
    }
}

impl Desk {
    /// A run that is lost behind its point of no return.
    async fn lose(&self, key: &str) -> Ask {
        let ask = post("/orders").key(key);
        let lost = ask.clone().flags("commit&panic");
        lost.send(&self.service)
            .await
            .assert_refused(500, "handler-panicked");
        ask
    }

    async fn unknown(&self) -> Vec<tower_idempotency::UnknownOutcome> {
        let page = self.operator.unknown(None).await.unwrap();
        assert_eq!(page.next, None);
        page.outcomes
    }

    async fn explain(&self, ask: &Ask) -> Explanation {
        let key = self.operator.key_of(&ask.request().into_parts().0).unwrap();
        self.operator.explain(key).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_outcomes_are_listed_and_nothing_else() {
    let desk = desk();
    post("/orders")
        .key("done")
        .send(&desk.service)
        .await
        .assert_fresh(201);
    desk.lose("lost").await;
    // A lease of another layer, unknown, too.
    let key = tower_claim::Key::builder(Use::Lease, &Namespace::default()).build();
    let store = desk.app.store.inner();
    let settings = Settings {
        on_lapse: LapsePolicy::Hold,
        ..Settings::new(ms(10))
    };
    let request = tower_claim::store::ClaimRequest {
        key,
        nonce: tower_claim::Nonce::from_bytes([1; 16]),
        fingerprint: None,
        settings: &settings,
        floor: tower_claim::Token::ZERO,
        not_after: store.now().saturating_add(ms(1000)),
    };
    store.claim(request).await.unwrap();
    tokio::time::sleep(ms(1000)).await;
    let unknown = desk.unknown().await;
    assert_eq!(unknown.len(), 1);
    assert!(unknown[0].marked && !unknown[0].hook_asked);
    assert_eq!(unknown[0].since, ms(1000));
    assert!(
        unknown[0]
            .to_string()
            .contains("past its point of no return")
    );
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_run_under_hold_is_listed() {
    let app = App::new();
    let layer = app.builder().lease(ms(200)).renewal(Renewal::Off);
    let layer = layer.on_lapse(LapsePolicy::Hold).build().unwrap();
    let service = app.under(&layer);
    let operator = layer.operator(app.store.inner().clone());
    let ask = post("/orders").key("k").flags("delay=1000000");
    tokio::spawn(async move { ask.send(&service).await });
    tokio::time::sleep(ms(300)).await;
    let unknown = operator.unknown(None).await.unwrap().outcomes;
    assert_eq!((unknown.len(), unknown[0].marked), (1, false));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_resolved_with_a_response() {
    let desk = desk();
    let ask = desk.lose("k").await;
    ask.send(&desk.service)
        .await
        .assert_refused(409, "outcome-unknown");
    let response = Response::builder()
        .status(201)
        .header("location", "/orders/7")
        .header("set-cookie", "a=1");
    let response = response.body("found in the books".into()).unwrap();
    let unknown = desk.unknown().await.remove(0);
    let resolved = desk
        .operator
        .resolve_with(&unknown, response)
        .await
        .unwrap();
    assert!(matches!(resolved, Resolved::Resolved { .. }));
    let replay = ask.send(&desk.service).await;
    assert!(replay.is_replay());
    assert_eq!(replay.text(), "found in the books");
    assert_eq!(replay.headers["location"], "/orders/7");
    assert!(
        !replay.headers.contains_key("set-cookie"),
        "by the layer's rules"
    );
    assert!(replay.headers.contains_key("idempotency-first-seen"));
    assert_eq!(desk.app.effects(), 1);
    assert!(desk.unknown().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_resolved_as_done_or_runs_again() {
    let desk = desk();
    let (done, again) = (desk.lose("done").await, desk.lose("again").await);
    for unknown in desk.unknown().await {
        let is_done = desk.operator.key_of(&done.request().into_parts().0) == Some(unknown.key);
        let resolved = if is_done {
            desk.operator.resolve_done(&unknown).await
        } else {
            desk.operator.run_again(&unknown).await
        };
        assert!(matches!(resolved.unwrap(), Resolved::Resolved { .. }));
    }
    done.send(&desk.service)
        .await
        .assert_refused(409, "response-not-kept");
    again.send(&desk.service).await.assert_fresh(201);
    assert_eq!(desk.app.effects(), 3);
    assert_eq!(desk.layer.counts().not_kept, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_newer_is_resolved_unseen() {
    let desk = desk();
    let ask = desk.lose("k").await;
    let seen = desk.unknown().await.remove(0);
    desk.operator.run_again(&seen).await.unwrap();
    let lost = ask.clone().flags("commit&panic").send(&desk.service).await;
    lost.assert_refused(500, "handler-panicked");
    let late = desk.operator.run_again(&seen).await.unwrap();
    assert!(matches!(late, Resolved::Conflict { .. }));
    ask.send(&desk.service)
        .await
        .assert_refused(409, "outcome-unknown");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_explained_in_each_of_its_states() {
    let desk = desk();
    let ask = post("/orders").key("k");
    assert!(matches!(desk.explain(&ask).await, Explanation::NeverSeen));
    let running = tokio::spawn({
        let (ask, service) = (ask.clone().flags("commit&delay=1000"), desk.service.clone());
        async move { ask.send(&service).await }
    });
    tokio::time::sleep(ms(500)).await;
    let explained = desk.explain(&ask).await;
    let Explanation::Running { since, marked, .. } = explained else {
        panic!("{explained}");
    };
    assert_eq!((since, marked), (ms(500), true));
    assert!(
        explained
            .to_string()
            .contains("past its point of no return")
    );
    let first = running.await.unwrap();
    tokio::time::sleep(ms(300)).await;
    let explained = desk.explain(&ask).await;
    let Explanation::Done {
        response, finished, ..
    } = &explained
    else {
        panic!("{explained}");
    };
    let response = response.as_ref().unwrap();
    assert_eq!(response.status(), first.status);
    assert_eq!(response.body(), first.body.as_ref().unwrap());
    assert_eq!(*finished, ms(300));
    let debugged = format!("{explained:?}");
    assert!(debugged.contains("201"), "{debugged}");
    assert!(
        !debugged.contains("read") && !debugged.contains("/orders/"),
        "{debugged}"
    );
    assert!(explained.to_string().contains("201"));

    let lost = desk.lose("lost").await;
    let explained = desk.explain(&lost).await;
    assert!(matches!(explained, Explanation::Unknown(_)), "{explained}");
    // Nothing was run or written for it.
    assert_eq!(desk.app.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_layer_lets_pass_has_no_key() {
    let desk = desk();
    let parts = |ask: Ask| ask.request().into_parts().0;
    assert_eq!(desk.operator.key_of(&parts(post("/orders"))), None);
    let get = post("/orders").method(http::Method::GET).key("k");
    assert_eq!(desk.operator.key_of(&parts(get)), None);
    let key = |ask: Ask| desk.operator.key_of(&parts(ask)).unwrap();
    let other = post("/orders").key("k").header("x-tenant", "b");
    assert_ne!(key(post("/orders").key("k")), key(other), "another tenant");
}

impl Desk {
    async fn list(&self) -> Vec<ListedRecord> {
        let page = self.operator.list(None).await.unwrap();
        assert_eq!(page.next, None);
        page.records
    }

    fn key(&self, ask: &Ask) -> tower_claim::Key {
        let key = self.operator.key_of(&ask.request().into_parts().0);
        key.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn records_are_listed_with_what_is_known_of_them() {
    let desk = desk();
    let done = post("/orders").key("done");
    done.send(&desk.service).await.assert_fresh(201);
    let failed = post("/orders").key("failed").flags("status=503");
    failed.send(&desk.service).await.assert_fresh(503);
    let lost = desk.lose("lost").await;
    let old = post("/orders").key("old").flags("commit&delay=100000");
    let young = post("/orders").key("young").flags("delay=100000");
    for ask in [&old, &young] {
        let (ask, service) = (ask.clone(), desk.service.clone());
        tokio::spawn(async move { ask.send(&service).await });
        tokio::time::sleep(ms(1000)).await;
    }
    let listed = desk.list().await;
    let of = |ask: &Ask| {
        let key = desk.key(ask);
        let mut found = listed.iter().filter(|record| record.key == key);
        let first = found.next().cloned();
        assert!(found.next().is_none(), "twice");
        first
    };
    assert_eq!(listed.len(), 4, "what was given back is none: {listed:?}");
    assert!(of(&failed).is_none());
    let (done, lost) = (of(&done).unwrap(), of(&lost).unwrap());
    assert_eq!((done.state, done.since), (ListedState::Done, ms(2000)));
    assert_eq!(done.expires_in, ms(24 * 3_600_000 - 2000));
    assert_eq!((lost.state, lost.marked), (ListedState::Unknown, true));
    let (old, young) = (of(&old).unwrap(), of(&young).unwrap());
    assert_eq!((old.state, old.since), (ListedState::Running, ms(2000)));
    assert_eq!((young.state, young.since), (ListedState::Running, ms(1000)));
    assert_eq!((old.marked, young.marked), (true, false));
    assert_eq!((old.attempt, old.behind_hook), (1, false));
    assert!(old.expires_in > ms(0) && old.last_beat < ms(200));
    assert!(young.token > done.token);
    let told = old.to_string();
    assert!(
        told.contains("running for 2s, past its point of no return"),
        "{told}"
    );
    assert_eq!(desk.app.effects(), 5, "nothing was run for it");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lapsed_is_listed_as_such_and_whoever_took_over_as_running() {
    let app = App::new();
    let layer = app.builder().lease(ms(200)).renewal(Renewal::Off);
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    let operator = layer.operator(app.store.inner().clone());
    let ask = post("/orders").key("k").flags("delay=1000000");
    for attempt in 1..3 {
        let (ask, service) = (ask.clone(), service.clone());
        tokio::spawn(async move { ask.send(&service).await });
        tokio::time::sleep(ms(100)).await;
        let listed = operator.list(None).await.unwrap().records.remove(0);
        assert_eq!(
            (listed.state, listed.attempt),
            (ListedState::Running, attempt)
        );
        tokio::time::sleep(ms(200)).await;
        let listed = operator.list(None).await.unwrap().records.remove(0);
        assert_eq!(
            (listed.state, listed.attempt),
            (ListedState::Lapsed, attempt)
        );
        assert_eq!(listed.expires_in, ms(0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_outcome_is_listed_as_what_it_is() {
    let app = App::new();
    let says = std::sync::Mutex::new(vec![
        Reconciled::Done(Response::new("booked".into())),
        Reconciled::NotYet(ms(1000)),
    ]);
    let store = app.store.inner().clone();
    let layer = app.builder().lease(ms(200)).reconcile(store, move |_| {
        let said = says.lock().unwrap().pop().unwrap();
        async { said }
    });
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    let operator = layer.operator(app.store.inner().clone());
    let ask = post("/orders").key("k");
    let lost = ask.clone().flags("commit&panic").send(&service).await;
    lost.assert_refused(500, "handler-panicked");
    ask.send(&service)
        .await
        .assert_refused(409, "outcome-unknown");
    let key = operator.key_of(&ask.request().into_parts().0).unwrap();
    let list = async || operator.list(None).await.unwrap().records;
    let listed = list().await;
    assert_eq!((listed.len(), listed[0].key), (1, key));
    let ListedState::LeadsOn { to, to_hook: true } = listed[0].state else {
        panic!("{listed:?}");
    };
    assert!(listed[0].to_string().contains(&to.to_string()));
    assert_eq!(ask.send(&service).await.text(), "booked");
    let mut listed = list().await;
    listed.sort_by_key(|record| record.key != key);
    assert_eq!(listed.len(), 2);
    assert!(matches!(listed[0].state, ListedState::LeadsOn { .. }));
    assert_eq!((listed[1].key, listed[1].state), (to, ListedState::Done));
    assert!(listed[1].behind_hook && !listed[0].behind_hook);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ended_without_having_begun_is_listed_as_withdrawn() {
    let desk = desk();
    let faults = desk.app.store.faults();
    faults.set_for(Operation::Mark, Fault::Delay(ms(10_000)));
    let ask = post("/orders").key("k").flags("commit");
    let _ = soon(tower::ServiceExt::oneshot(
        desk.service.clone(),
        ask.request(),
    ))
    .await;
    let listed = desk.list().await.remove(0);
    assert_eq!(listed.state, ListedState::Withdrawn);
    assert!(listed.expires_in <= ms(200));
    let explained = desk.explain(&ask).await;
    assert!(
        matches!(explained, Explanation::Running { .. }),
        "{explained}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_page_by_page_and_nothing_of_it_twice() {
    let desk = desk();
    for n in 0..450 {
        let ask = post("/orders").key(&format!("order-{n}"));
        ask.send(&desk.service).await.assert_fresh(201);
    }
    let (mut keys, mut from, mut pages) = (std::collections::HashSet::new(), None, 0);
    loop {
        let page = desk.operator.list(from).await.unwrap();
        for record in page.records {
            assert_eq!(record.state, ListedState::Done);
            assert!(keys.insert(record.key), "twice");
        }
        pages += 1;
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(keys.len(), 450);
    assert!(pages >= 3, "{pages}");
}
