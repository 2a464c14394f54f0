//! The operator's side.

use http::Response;
use tower_claim::store::Resolved;
use tower_claim::{ClaimStore, LapsePolicy, Namespace, Renewal, Settings, Use};
use tower_idempotency::{Explanation, IdempotencyLayer, Operator};

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
