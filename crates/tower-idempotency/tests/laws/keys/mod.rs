//! Keys, scopes, fingerprints: what is one request, and what is another.

mod bodies;
mod settings;

use http::Method;
use tower_claim::http::{Gate, KeyFields, KeySyntax, Mode, Switch, path_segment};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_repeat_is_replayed_and_runs_once() {
    let app = App::new();
    let service = app.service();
    let first = post("/orders").key("k").send(&service).await;
    first.assert_fresh(201);
    for _ in 0..3 {
        post("/orders")
            .key("k")
            .send(&service)
            .await
            .assert_replay_of(&first);
    }
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_passes_and_leaves_no_record() {
    let app = App::new();
    let service = app.service();
    for n in 1..=2 {
        post("/orders").send(&service).await.assert_fresh(201);
        assert_eq!(app.effects(), n);
    }
    assert_eq!(app.store.faults().calls().total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_required_key_is_asked_for() {
    let app = App::new();
    let service = app.under(&app.builder().require_key().build().unwrap());
    post("/orders")
        .send(&service)
        .await
        .assert_refused(400, "key-missing");
    post("/orders")
        .method(Method::GET)
        .send(&service)
        .await
        .assert_fresh(201);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn safe_methods_write_no_record_and_are_never_replayed() {
    let app = App::new();
    let service = app.service();
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
        for _ in 0..2 {
            let ask = post("/orders").method(method.clone()).key("k");
            ask.send(&service).await.assert_fresh(201);
        }
    }
    assert_eq!(app.effects(), 8);
    assert_eq!(app.store.faults().calls().total(), 0);
}

#[tokio::test(start_paused = true)]
async fn odd_keys_are_refused_without_effect_or_record() {
    let app = App::new();
    let service = app.service();
    let long = "x".repeat(256);
    for key in [
        "",
        "\"\"",
        "   ",
        &long,
        "caf\u{e9}",
        "a,b",
        "a\tb",
        "abc;x=1",
    ] {
        let refused = post("/orders").key(key).send(&service).await;
        refused.assert_refused(400, "key-invalid");
    }
    let twice = post("/orders").key("a").key("a").send(&service).await;
    twice.assert_refused(400, "key-invalid");
    assert_eq!((app.effects(), app.store.faults().calls().total()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn quoted_and_bare_forms_are_one_key_in_lenient_mode() {
    let app = App::new();
    let service = app.service();
    let first = post("/orders").key("order:1/2").send(&service).await;
    for same in ["\"order:1/2\"", "\"order:1/2\";x=1"] {
        post("/orders")
            .key(same)
            .send(&service)
            .await
            .assert_replay_of(&first);
    }
    let strict = app.under(&app.builder().key_syntax(KeySyntax::Strict).build().unwrap());
    post("/orders")
        .key("\"order:1/2\"")
        .send(&strict)
        .await
        .assert_replay_of(&first);
    post("/orders")
        .key("order:1/2")
        .send(&strict)
        .await
        .assert_refused(400, "key-invalid");
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_tenants_with_one_key_never_meet() {
    let app = App::new();
    let service = app.service();
    let of = |tenant: &str| post("/orders").key("k").header("x-tenant", tenant);
    let first = of("t1").send(&service).await;
    let second = of("t2").send(&service).await;
    second.assert_fresh(201);
    assert_ne!(first.body, second.body);
    // A request of nobody is no request of a tenant named like the word for nobody.
    for nobody in [post("/orders").key("k"), of("shared"), of("anonymous")] {
        nobody.send(&service).await.assert_fresh(201);
    }
    of("")
        .send(&service)
        .await
        .assert_replay_of(&post("/orders").key("k").send(&service).await);
    assert_eq!(app.effects(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_required_scope_is_no_shared_bucket() {
    let app = App::new();
    let service = app.under(&app.builder().require_scope().build().unwrap());
    let ask = post("/orders").key("k");
    ask.send(&service)
        .await
        .assert_refused(400, "scope-missing");
    let empty = ask.clone().header("x-tenant", "");
    empty
        .send(&service)
        .await
        .assert_refused(400, "scope-missing");
    ask.header("x-tenant", "t")
        .send(&service)
        .await
        .assert_fresh(201);
    assert_eq!((app.effects(), app.records()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn namespaces_keep_two_applications_on_one_store_apart() {
    let app = App::new();
    for name in ["a", "b"] {
        let service = app.under(&app.builder().namespace(name).build().unwrap());
        post("/orders")
            .key("k")
            .send(&service)
            .await
            .assert_fresh(201);
    }
}

#[tokio::test(start_paused = true)]
async fn a_derived_key_needs_no_header_and_the_first_text_wins() {
    let app = App::new();
    let once = app.builder().derived_key(|req| {
        let room = req.uri.path().strip_prefix("/classrooms/")?;
        Some(KeyFields::new().field("room", room))
    });
    let service = app.under(&once.first_payload_wins().build().unwrap());
    let first = post("/classrooms/7").body("hello").send(&service).await;
    first.assert_fresh(201);
    let again = post("/classrooms/7?draft=1").body("hullo").key("ignored");
    again.send(&service).await.assert_replay_of(&first);
    post("/classrooms/8")
        .body("hello")
        .send(&service)
        .await
        .assert_fresh(201);
    post("/elsewhere")
        .body("hello")
        .send(&service)
        .await
        .assert_fresh(201);
    post("/elsewhere")
        .body("hello")
        .send(&service)
        .await
        .assert_fresh(201);
    assert_eq!(app.effects(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_name_of_the_path_is_one_key_in_each_spelling() {
    let app = App::new();
    let room = path_segment("/classrooms/{room}").unwrap();
    let once = app
        .builder()
        .derived_key(move |req| Some(KeyFields::new().field("room", room(req)?)));
    let service = app.under(&once.first_payload_wins().build().unwrap());
    let first = post("/classrooms/77").send(&service).await;
    first.assert_fresh(201);
    for spelling in ["/classrooms/%37%37", "/classrooms/7%37"] {
        // The path is of the fingerprint as it was sent: another one under the key, and no second run.
        let repeat = post(spelling).send(&service).await;
        repeat.assert_refused(422, "key-reused");
    }
    assert_eq!(app.effects(), 1);
    let same = post("/classrooms/77").send(&service).await;
    same.assert_replay_of(&first);
    let other = post("/classrooms/%2577").send(&service).await;
    other.assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn inner_layers_that_rewrite_the_request_change_nothing() {
    // The key and the fingerprint were taken before them; nothing is computed again at the end.
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let inner = app.under(
        &app.builder()
            .gate(Gate::new().switch(Switch::new(Mode::Off)))
            .build()
            .unwrap(),
    );
    let rewriting = tower::service_fn(move |mut request: http::Request<_>| {
        request.headers_mut().remove("idempotency-key");
        *request.uri_mut() = "/elsewhere".parse().unwrap();
        let request = request.map(|_: tower_idempotency::RequestBody<Body>| body_of("other"));
        let inner = inner.clone();
        async move {
            let response = tower::ServiceExt::oneshot(inner, request).await?;
            Ok::<_, std::io::Error>(response.map(as_body))
        }
    });
    let service = tower::Layer::layer(&layer, tower::util::BoxCloneSyncService::new(rewriting));
    let first = post("/orders").key("k").send(&service).await;
    first.assert_fresh(201);
    post("/orders")
        .key("k")
        .send(&service)
        .await
        .assert_replay_of(&first);
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_layer_met_twice_does_not_ask_twice_for_a_key_that_was_taken_off() {
    let app = App::new();
    let layer = app.builder().require_key().require_scope().build().unwrap();
    let inner = app.under(&layer);
    let stripping = tower::service_fn(move |mut request: http::Request<_>| {
        request.headers_mut().remove("idempotency-key");
        let request = request.map(|_: tower_idempotency::RequestBody<Body>| body_of("{}"));
        let inner = inner.clone();
        async move {
            let response = tower::ServiceExt::oneshot(inner, request).await?;
            Ok::<_, std::io::Error>(response.map(as_body))
        }
    });
    let service = tower::Layer::layer(&layer, tower::util::BoxCloneSyncService::new(stripping));
    let ask = post("/orders").key("k").header("x-tenant", "t");
    let first = ask.send(&service).await;
    first.assert_fresh(201);
    ask.send(&service).await.assert_replay_of(&first);
}
