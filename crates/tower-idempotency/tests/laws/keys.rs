//! Keys, scopes, fingerprints: what is one request, and what is another.

use futures_util::{FutureExt, stream};
use http::{HeaderName, Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower_claim::MemoryStore;
use tower_claim::http::{Gate, KeyFields, KeySyntax, Mode, Switch};
use tower_idempotency::{IdempotencyBuilder, IdempotencyLayer};

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
async fn one_key_for_another_payload_is_refused() {
    let app = App::new();
    let service = app.service();
    let first = post("/orders")
        .key("k")
        .header("content-type", "application/json");
    first
        .clone()
        .body("{\"a\":1}")
        .send(&service)
        .await
        .assert_fresh(201);
    let others = [
        first.clone().body("{\"a\":2}"),
        first.clone().body("{}"),
        first.clone().body(""),
        first.clone().no_body(),
        first.clone().body("{\"a\":1}").method(Method::PUT),
        post("/orders")
            .key("k")
            .header("content-type", "text/plain")
            .body("{\"a\":1}"),
        post("/orders?x=1")
            .key("k")
            .header("content-type", "application/json")
            .body("{\"a\":1}"),
        post("/refunds")
            .key("k")
            .header("content-type", "application/json")
            .body("{\"a\":1}"),
    ];
    for other in others {
        other.send(&service).await.assert_refused(422, "key-reused");
    }
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn empty_an_empty_object_and_absent_are_three_bodies() {
    let app = App::new();
    let service = app.service();
    let bodies = [
        post("/orders").key("k").body(""),
        post("/orders").key("k").body("{}"),
        post("/orders").key("k").no_body(),
    ];
    for (i, first) in bodies.iter().enumerate() {
        let key = format!("k{i}");
        let with_key = |ask: &Ask| {
            let mut request = ask.request();
            request
                .headers_mut()
                .insert("idempotency-key", key.parse().unwrap());
            request
        };
        send(&service, with_key(first)).await.assert_fresh(201);
        for (j, other) in bodies.iter().enumerate() {
            let again = send(&service, with_key(other)).await;
            if i == j {
                assert!(again.is_replay(), "{i}");
            } else {
                again.assert_refused(422, "key-reused");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn chunk_borders_and_a_missing_length_do_not_matter() {
    let app = App::new();
    let service = app.service();
    let chunked = |chunks: &'static [&'static str]| {
        let frames = chunks.iter().map(|c| Ok(Frame::data((*c).into())));
        let mut request = post("/orders")
            .key("k")
            .no_body()
            .with(StreamBody::new(stream::iter(frames)).boxed_unsync());
        request
            .headers_mut()
            .insert("transfer-encoding", "chunked".parse().unwrap());
        request
    };
    let first = send(&service, chunked(&["{\"a\"", ":1}"])).await;
    first.assert_fresh(201);
    for same in [&["{\"a\":1}"][..], &["", "{", "\"a\":1}", ""]] {
        send(&service, chunked(same)).await.assert_replay_of(&first);
    }
    let sized = post("/orders")
        .key("k")
        .body("{\"a\":1}")
        .send(&service)
        .await;
    sized.assert_replay_of(&first);
    send(&service, chunked(&["{\"a\"", ":2}"]))
        .await
        .assert_refused(422, "key-reused");
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
async fn a_body_over_the_limit_is_refused_without_effect_or_record() {
    let app = App::new();
    let service = app.under(&app.builder().max_request_body(8).build().unwrap());
    let ask = post("/orders").key("k");
    let long = ask.clone().body("123456789").send(&service).await;
    long.assert_refused(413, "body-too-large");
    let frames = ["12345678", "9"].map(|c| Ok(Frame::data(c.into())));
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    send(&service, ask.clone().no_body().with(body))
        .await
        .assert_refused(413, "body-too-large");
    assert_eq!((app.effects(), app.store.faults().calls().total()), (0, 0));
    ask.body("12345678").send(&service).await.assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn a_broken_upload_has_no_effect_and_leaves_the_key_free() {
    let app = App::new();
    let service = app.service();
    let frames = [
        Ok(Frame::data("{".into())),
        Err(std::io::Error::other("connection reset")),
    ];
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    let ask = post("/orders").key("k");
    send(&service, ask.with(body))
        .await
        .assert_refused(400, "body-broken");
    assert_eq!((app.effects(), app.store.faults().calls().total()), (0, 0));
    ask.send(&service).await.assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_during_the_upload_leaves_the_key_free() {
    let app = App::new();
    let service = app.service();
    let body = StreamBody::new(stream::pending()).boxed_unsync();
    let ask = post("/orders").key("k");
    assert!(send(&service, ask.with(body)).now_or_never().is_none());
    ask.send(&service).await.assert_fresh(201);
    assert_eq!(app.effects(), 1);
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

#[test]
fn settings_about_a_key_that_can_have_no_effect_are_refused() {
    let refused = |builder: IdempotencyBuilder| builder.build().unwrap_err().setting();
    let plain = || IdempotencyLayer::builder(MemoryStore::new());
    assert_eq!(refused(plain().require_scope()), "require_scope");
    let name = HeaderName::from_static("x-request-key");
    let derived = || plain().derived_key(|req| req.uri.path().to_owned());
    assert_eq!(refused(derived().header(name)), "header");
    assert_eq!(refused(derived().key_syntax(KeySyntax::Strict)), "header");
    let stream_nothing = plain().verify_content_digest().stream_uploads(0);
    assert_eq!(refused(stream_nothing), "stream_uploads");
}
