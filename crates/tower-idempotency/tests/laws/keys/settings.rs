//! Gates, words, and settings that are refused.

use http::{HeaderName, Method, StatusCode};
use tower_claim::MemoryStore;
use tower_claim::http::{Gate, KeySyntax, Mode, Switch};
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn observe_only_counts_and_never_acts() {
    let app = App::new();
    let switch = Switch::new(Mode::Observe);
    let layer = app
        .builder()
        .gate(Gate::new().switch(switch.clone()))
        .build()
        .unwrap();
    let service = app.under(&layer);
    for _ in 0..2 {
        post("/orders")
            .key("k")
            .send(&service)
            .await
            .assert_fresh(201);
    }
    post("/orders")
        .key("a,b")
        .send(&service)
        .await
        .assert_fresh(201);
    let counts = layer.counts();
    assert_eq!(
        (counts.observed, counts.observed_refusals, counts.runs),
        (2, 1, 0)
    );
    switch.set(Mode::On);
    post("/orders")
        .key("k")
        .send(&service)
        .await
        .assert_fresh(201);
    assert!(post("/orders").key("k").send(&service).await.is_replay());
    switch.set(Mode::Off);
    post("/orders")
        .key("k")
        .send(&service)
        .await
        .assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn refusals_can_be_worded_by_the_user() {
    let app = App::new();
    let layer = app
        .builder()
        .require_key()
        .on_refusal(|refusal, mut response| {
            *response.body_mut() =
                format!("\"code\":\"{}\" in our words", refusal.code().name()).into();
            response
        });
    let service = app.under(&layer.build().unwrap());
    let refused = post("/orders").send(&service).await;
    refused.assert_refused(400, "key-missing");
    assert!(refused.text().ends_with("in our words"));
}

#[tokio::test(start_paused = true)]
async fn grpc_is_refused_in_its_own_way() {
    let app = App::new();
    let service = app.under(&app.builder().require_key().build().unwrap());
    let ask = post("/lab.Lab/Order").header("content-type", "application/grpc");
    let refused = ask.send(&service).await;
    assert_eq!(refused.status, StatusCode::OK);
    assert_eq!(refused.headers["grpc-status"], "3");
    assert_eq!(refused.text(), "");
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_work_are_refused_when_built() {
    let app = App::new();
    let refused =
        |builder: tower_idempotency::IdempotencyBuilder| builder.build().unwrap_err().setting();
    assert_eq!(refused(app.builder().lease(ms(50))), "lease");
    assert_eq!(refused(app.builder().retention(ms(0))), "retention");
    for namespace in ["", "a b", "a/b", "ü", &"x".repeat(65)] {
        assert_eq!(refused(app.builder().namespace(namespace)), "namespace");
    }
    assert_eq!(refused(app.builder().max_in_flight(0)), "max_in_flight");
    assert_eq!(
        refused(app.builder().max_in_flight(usize::MAX)),
        "max_in_flight"
    );
    assert_eq!(refused(app.builder().max_waiters(0)), "max_waiters");
    let wait = tower_idempotency::OnBusy::Wait(ms(0));
    assert_eq!(refused(app.builder().on_busy(wait)), "on_busy");
    assert!(
        app.builder().retention(ms(1)).build().is_ok(),
        "shorter than the lease"
    );
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_names_no_methods_leaves_safe_ones_alone() {
    let app = App::new();
    let gate = Gate::new().routes(["/orders"]);
    let service = app.under(&app.builder().gate(gate).build().unwrap());
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        let ask = post("/orders").method(method).key("k").no_body();
        for _ in 0..2 {
            ask.send(&service).await.assert_fresh(201);
        }
    }
    assert_eq!(app.records(), 0);
    let named = Gate::new().methods([Method::GET]);
    let service = app.under(&app.builder().gate(named).build().unwrap());
    let ask = post("/orders").method(Method::GET).key("k").no_body();
    let first = ask.send(&service).await;
    ask.send(&service).await.assert_replay_of(&first);
}

#[test]
fn settings_about_a_key_that_can_have_no_effect_are_refused() {
    let refused = |builder: IdempotencyBuilder| builder.build().unwrap_err().setting();
    let plain = || IdempotencyLayer::builder(MemoryStore::new());
    assert_eq!(refused(plain().require_scope()), "require_scope");
    let name = HeaderName::from_static("x-request-key");
    let derived = || plain().derived_key(|req| req.uri.path().to_owned());
    assert_eq!(refused(derived()), "derived_key");
    let scoped = derived().scope(|req| req.uri.host().map(str::to_owned));
    assert!(scoped.build().is_ok() && derived().one_tenant().build().is_ok());
    assert_eq!(refused(derived().header(name)), "header");
    assert_eq!(refused(derived().key_syntax(KeySyntax::Strict)), "header");
    let stream_nothing = plain().verify_content_digest().stream_uploads(0);
    assert_eq!(refused(stream_nothing), "stream_uploads");
}
