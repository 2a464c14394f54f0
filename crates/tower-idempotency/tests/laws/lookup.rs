//! *What became of my key?*

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::Full;
use tokio::time::Instant;
use tower::ServiceExt;
use tower_claim::store::{
    Beat, Capabilities, ClaimRequest, Claimed, DoneRecord, Finish, FinishRequest, Marked, Owner,
    RecordView, Release, ReleaseRequest, Renewed, State, StoreTime, Value, Watched,
};
use tower_claim::testing::{Calls, Fault, Operation};
use tower_claim::{ClaimStore, DynClaimStore, Key, LapsePolicy, RunOn, StoreError, Token};
use tower_idempotency::{IdempotencyLayer, KeyLookup, OnWeakKey, RequestFields};

use crate::support::*;

/// A question about a key.
fn question(key: &str) -> http::request::Builder {
    Request::get("/idempotency-key").header("idempotency-key", key)
}

async fn ask(lookup: &KeyLookup, question: http::request::Builder) -> Answer {
    let question = question.body(Full::<Bytes>::default()).unwrap();
    soon(async { read(lookup.clone().oneshot(question).await.unwrap()).await }).await
}

#[track_caller]
fn assert_state(answer: &Answer, status: u16, state: &str) {
    let begins = format!("{{\"state\":\"{state}\"");
    assert_eq!(answer.status, status, "{answer:?}");
    assert!(answer.text().starts_with(&begins), "{answer:?}");
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_eq!(answer.headers["content-type"], "application/json");
}

/// Every call that may change a record.
fn changes(calls: &Calls) -> Vec<u64> {
    use Operation::{Claim, Finish, Mark, Release, Renew};
    let all = [Claim, Finish, Mark, Release, Renew];
    all.into_iter()
        .map(|operation| calls.of(operation))
        .collect()
}

async fn start(service: &Service, ask: Ask) -> tokio::task::JoinHandle<Answer> {
    let service = service.clone();
    let running = tokio::spawn(async move { ask.send(&service).await });
    tokio::time::sleep(ms(1)).await;
    running
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_seen_then_running_then_done_with_its_response() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let (service, lookup) = (app.under(&layer), KeyLookup::new(&layer));
    let never = ask(&lookup, question("k")).await;
    assert_state(&never, 404, "never-seen");
    assert_eq!(never.text(), r#"{"state":"never-seen"}"#);

    let first = start(&service, post("/orders").key("k").flags("delay=5000")).await;
    tokio::time::sleep(ms(1999)).await;
    let running = ask(&lookup, question("\"k\"")).await;
    assert_state(&running, 202, "running");
    assert_eq!(
        running.text(),
        r#"{"state":"running","since_ms":2000,"attempt":1,"expires_in_ms":28000,"lapsed":false}"#
    );
    assert_eq!(running.retry_after(), Some(28), "what is left of the lease");

    first.await.unwrap().assert_fresh(201);
    tokio::time::sleep(ms(1000)).await;
    let done = ask(&lookup, question("k")).await;
    assert_state(&done, 200, "done");
    assert_eq!(
        done.text(),
        concat!(
            r#"{"state":"done","finished_ms":1000,"expires_in_ms":86399000,"response":{"status":201,"#,
            r#""headers":[["location","/orders/1"],["etag","\"v1\""],["link","</a>; rel=a"],"#,
            r#"["link","</b>; rel=b"],["x-name","café"]],"#,
            r#""body":"{\"n\":1,\"read\":2}"}}"#
        )
    );
    assert_eq!(app.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_unknown_is_told_as_such() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let (service, lookup) = (app.under(&layer), KeyLookup::new(&layer));
    let marked = post("/orders").key("k").flags("commit&panic");
    marked
        .send(&service)
        .await
        .assert_refused(500, "handler-panicked");
    tokio::time::sleep(ms(1000)).await;
    let unknown = ask(&lookup, question("k")).await;
    assert_state(&unknown, 409, "unknown");
    assert_eq!(
        unknown.text(),
        r#"{"state":"unknown","since_ms":1000,"expires_in_ms":86399000}"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lapsed_is_told_with_its_attempt() {
    let app = App::new();
    let layer = app
        .builder()
        .lease(ms(200))
        .renewal(tower_claim::Renewal::Off);
    let layer = layer.build().unwrap();
    let (service, lookup) = (app.under(&layer), KeyLookup::new(&layer));
    let order = post("/orders").key("k").flags("delay=1000");
    let first = start(&service, order.clone()).await;
    tokio::time::sleep(ms(300)).await;
    let lapsed = ask(&lookup, question("k")).await;
    assert_state(&lapsed, 202, "running");
    assert!(
        lapsed
            .text()
            .contains(r#""attempt":1,"expires_in_ms":0,"lapsed":true"#)
    );
    assert_eq!(lapsed.retry_after(), Some(1));
    let second = start(&service, order).await;
    let again = ask(&lookup, question("k")).await;
    assert!(again.text().contains(r#""attempt":2,"#), "{again:?}");
    first.await.unwrap();
    second.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_response_that_was_not_kept_and_one_that_is_no_text_are_told() {
    let app = App::new();
    let layer = app.builder().max_response_body(100).build().unwrap();
    let (service, lookup) = (app.under(&layer), KeyLookup::new(&layer));
    post("/orders")
        .key("big")
        .flags("size=101")
        .send(&service)
        .await;
    let done = ask(&lookup, question("big")).await;
    assert_state(&done, 200, "done");
    assert!(
        done.text()
            .contains(r#""response":{"status":201,"headers":[["#)
    );
    assert!(!done.text().contains("body"), "its head alone: {done:?}");

    let echo = app.builder().build().unwrap();
    let binary = tower::Layer::layer(
        &echo,
        tower::util::BoxCloneSyncService::new(tower::service_fn(async |_| {
            let body = body_of(Bytes::from_static(&[0xFF, 0, 0x7F]));
            Ok::<_, std::io::Error>(http::Response::new(body))
        })) as Handler,
    );
    post("/orders").key("bin").send(&binary).await;
    let done = ask(&KeyLookup::new(&echo), question("bin")).await;
    assert!(
        done.text().ends_with(r#""body_base64":"/wB/"}}"#),
        "{done:?}"
    );
    let hidden = KeyLookup::builder(&echo).without_responses().build();
    let done = ask(&hidden.unwrap(), question("bin")).await;
    assert!(done.text().ends_with(r#""response":null}"#), "{done:?}");
}

#[tokio::test(start_paused = true)]
async fn the_key_of_another_tenant_was_never_seen() {
    let app = App::new();
    let layer = app.builder().require_scope().build().unwrap();
    let (service, lookup) = (app.under(&layer), KeyLookup::new(&layer));
    let order = post("/orders").key("k").header("x-tenant", "a");
    order.send(&service).await.assert_fresh(201);
    let by = |tenant| question("k").header("x-tenant", tenant);
    assert_state(&ask(&lookup, by("a")).await, 200, "done");
    let other = ask(&lookup, by("b")).await;
    assert_eq!(other.text(), r#"{"state":"never-seen"}"#);
    ask(&lookup, question("k"))
        .await
        .assert_refused(400, "scope-missing");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_answered_is_refused() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let lookup = KeyLookup::new(&layer);
    let without = Request::get("/");
    ask(&lookup, without)
        .await
        .assert_refused(400, "key-missing");
    ask(&lookup, question("a,b"))
        .await
        .assert_refused(400, "key-invalid");
    let twice = question("a").header("idempotency-key", "b");
    ask(&lookup, twice).await.assert_refused(400, "key-invalid");
    for method in [Method::POST, Method::DELETE, Method::PUT] {
        let refused = ask(&lookup, question("k").method(method)).await;
        refused.assert_refused(405, "method-not-allowed");
        assert_eq!(refused.headers["allow"], "GET, HEAD");
    }
    app.store.faults().set(Fault::Down);
    let down = ask(&lookup, question("k").header("prefer", "wait=5")).await;
    down.assert_refused(503, "store-unavailable");
    assert_eq!(down.headers["content-type"], "application/problem+json");
    assert!(down.retry_after().is_some());
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_the_moment_the_run_is_over() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let (service, lookup) = (app.under(&layer), KeyLookup::new(&layer));
    let at = Instant::now();
    let first = start(&service, post("/orders").key("k").flags("delay=4000")).await;
    let attach = || question("k").header("prefer", "wait=20");
    let all = join_all((0..50).map(|_| ask(&lookup, attach()))).await;
    assert_eq!(at.elapsed(), ms(4000));
    for done in &all {
        assert_state(done, 200, "done");
        assert_eq!(done.headers["preference-applied"], "wait=20");
    }
    first.await.unwrap().assert_fresh(201);
    assert_eq!(app.store.faults().calls().of(Operation::Watch), 1);
    assert_eq!((app.effects(), layer.waiting()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_to_come_again_when_the_time_is_up() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let service = app.under(&layer);
    let lookup = KeyLookup::builder(&layer).max_wait(ms(3000)).build();
    let lookup = lookup.unwrap();
    let first = start(&service, post("/orders").key("k").flags("delay=60000")).await;
    for (asked, waited) in [("wait=2", 2), ("wait=99", 3), ("wait=0", 0)] {
        let at = Instant::now();
        let running = ask(&lookup, question("k").header("prefer", asked)).await;
        assert_state(&running, 202, "running");
        assert_eq!(at.elapsed(), ms(waited * 1000));
        let applied = format!("wait={waited}");
        assert_eq!(running.headers["preference-applied"], applied.as_str());
        assert!(running.retry_after().is_some());
    }
    first.await.unwrap().assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn who_waits_sees_a_run_that_ends_without_an_outcome_and_one_that_is_taken_over() {
    let app = App::new();
    let layer = app
        .builder()
        .lease(ms(500))
        .renewal(tower_claim::Renewal::Off);
    let layer = layer.build().unwrap();
    let (service, lookup) = (app.under(&layer), KeyLookup::new(&layer));
    let order = post("/orders").key("k");
    let first = start(&service, order.clone().flags("delay=100&status=503")).await;
    let attach = || question("k").header("prefer", "wait=20");
    assert_state(&ask(&lookup, attach()).await, 404, "never-seen");
    first.await.unwrap().assert_fresh(503);

    let late = start(&service, order.clone().flags("delay=9000")).await;
    let (taken_over, waited) = tokio::join!(
        async {
            tokio::time::sleep(ms(1000)).await;
            order.clone().flags("delay=100").send(&service).await
        },
        ask(&lookup, attach()),
    );
    taken_over.assert_fresh(201);
    assert_state(&waited, 200, "done");
    assert!(waited.text().contains("/orders/3"), "{waited:?}");
    late.await.unwrap().assert_replay_of(&taken_over);
}

#[tokio::test(start_paused = true)]
async fn no_more_wait_than_may_and_who_leaves_frees_its_place() {
    let app = App::new();
    let layer = app.builder().max_waiters(1).build().unwrap();
    let (service, lookup) = (app.under(&layer), KeyLookup::new(&layer));
    let first = start(&service, post("/orders").key("k").flags("delay=5000")).await;
    let attach = || question("k").header("prefer", "wait=20");
    for _ in 0..3 {
        let gone = tokio::time::timeout(ms(10), ask(&lookup, attach())).await;
        assert!(gone.is_err(), "it waited");
        assert_eq!(layer.waiting(), 0);
    }
    let at = Instant::now();
    let (one, other) = tokio::join!(ask(&lookup, attach()), async {
        let other = ask(&lookup, attach()).await;
        assert_eq!(at.elapsed(), ms(0), "answered at once");
        other
    });
    assert_state(&other, 202, "running");
    assert_state(&one, 200, "done");
    first.await.unwrap().assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn a_question_never_runs_anything_and_never_writes() {
    let app = App::new();
    let hold = app.builder().on_lapse(LapsePolicy::Hold);
    let hold = hold.lease(ms(200)).renewal(tower_claim::Renewal::Off);
    let layer = hold.build().unwrap();
    let (service, lookup) = (app.under(&layer), KeyLookup::new(&layer));
    post("/orders").key("done").send(&service).await;
    let lapsed = start(&service, post("/orders").key("lapsed").flags("delay=10000")).await;
    tokio::time::sleep(ms(300)).await;
    let before = (changes(&app.store.faults().calls()), app.records());
    for key in ["done", "lapsed", "never"] {
        for prefer in ["wait=0", "wait=3"] {
            ask(&lookup, question(key).header("prefer", prefer)).await;
        }
    }
    let after = (changes(&app.store.faults().calls()), app.records());
    assert_eq!(before, after);
    assert_eq!((app.effects(), layer.counts().runs), (2, 2));
    lapsed.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keys_may_be_asked_for_in_the_path_and_derived_ones_by_a_function() {
    let app = App::new();
    let layer = app.builder().on_weak_key(OnWeakKey::Allow).build().unwrap();
    let service = app.under(&layer);
    post("/orders").key("\"order 1/2\"").send(&service).await;
    let lookup = KeyLookup::builder(&layer).key_in_path().build().unwrap();
    let by_path = Request::get("/keys/order%201%2F2");
    assert_state(&ask(&lookup, by_path).await, 200, "done");
    let malformed = ask(&lookup, Request::get("/keys/%zz")).await;
    malformed.assert_refused(400, "key-invalid");

    let derived = app
        .builder()
        .derived_from(RequestFields::new().form("invoice"));
    let derived = derived.build().unwrap();
    let error = KeyLookup::builder(&derived).build().unwrap_err();
    assert_eq!(error.setting(), "key_by");
    // A path has no key that the server makes: it would never have been seen.
    let by_function = app.builder().derived_key(|req| req.uri.path().to_owned());
    let of_path = app
        .builder()
        .derived_from(RequestFields::new().path("/rooms/{room}"));
    for layer in [
        &derived,
        &by_function.build().unwrap(),
        &of_path.build().unwrap(),
    ] {
        let by_path = KeyLookup::builder(layer).key_in_path();
        let error = by_path.build().unwrap_err();
        assert_eq!(error.setting(), "key_in_path");
    }
    let refused = ask(&KeyLookup::new(&derived), question("k")).await;
    refused.assert_refused(400, "key-missing");
    let order = post("/reminders").header("content-type", "application/x-www-form-urlencoded");
    order.body("invoice=42").send(&app.under(&derived)).await;
    let lookup = KeyLookup::builder(&derived).key_by(|req| {
        let invoice = req.uri.path().strip_prefix("/reminders/")?;
        Some(tower_claim::http::KeyFields::new().field("invoice", invoice))
    });
    let lookup = lookup.build().unwrap();
    assert_state(
        &ask(&lookup, Request::get("/reminders/42")).await,
        200,
        "done",
    );
    assert_state(
        &ask(&lookup, Request::get("/reminders/43")).await,
        404,
        "never-seen",
    );
}

/// As a router mounts it.
#[cfg(feature = "axum")]
#[tokio::test(start_paused = true)]
async fn axum_mounts_it() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    post("/orders").key("k").send(&app.under(&layer)).await;
    let by_path = KeyLookup::builder(&layer).key_in_path().build().unwrap();
    let keys = axum::Router::<()>::new().route_service("/keys/{key}", by_path);
    let router = axum::Router::new()
        .nest("/v1", keys)
        .route_service("/key", KeyLookup::new(&layer));
    for question in [Request::get("/v1/keys/k"), question("k").uri("/key")] {
        let request = question.body(axum::body::Body::empty()).unwrap();
        let answer = read(router.clone().oneshot(request).await.unwrap()).await;
        assert_state(&answer, 200, "done");
    }
}

/// Stores have two seconds for a call.
#[tokio::test(start_paused = true)]
async fn a_slow_store_tells_of_a_finished_run_all_the_same() {
    let app = App::new();
    let layer = app.builder().build().unwrap();
    let lookup = KeyLookup::new(&layer);
    post("/orders")
        .key("k")
        .send(&app.under(&layer))
        .await
        .assert_fresh(201);
    app.store
        .faults()
        .set_for(Operation::Watch, Fault::Delay(ms(1900)));
    assert_state(&ask(&lookup, question("k")).await, 200, "done");
}

/// A store that says of every key that it is finished, and then not, or that it leads on.
#[derive(Debug, Clone)]
struct Fooled {
    leads_on: bool,
}

impl ClaimStore for Fooled {
    fn capabilities(&self) -> Capabilities {
        Capabilities::in_process("fooled")
    }

    fn now(&self) -> StoreTime {
        StoreTime::from_micros(0)
    }

    async fn claim(&self, _: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        Err(StoreError::unavailable("fooled"))
    }

    async fn renew(&self, _: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        Err(StoreError::unavailable("fooled"))
    }

    async fn mark(&self, _: Owner) -> Result<Marked, StoreError> {
        Err(StoreError::unavailable("fooled"))
    }

    async fn finish(&self, _: FinishRequest) -> Result<Finish, StoreError> {
        Err(StoreError::unavailable("fooled"))
    }

    async fn release(&self, _: ReleaseRequest) -> Result<Release, StoreError> {
        Err(StoreError::unavailable("fooled"))
    }

    async fn watch(&self, _: Key, token: Token) -> Result<Watched, StoreError> {
        if !self.leads_on {
            return Ok(Watched::Ended);
        }
        Ok(Watched::Done(DoneRecord {
            token,
            same_fingerprint: true,
            value: Value::Kept(Bytes::from_static(b"\xC1\x01\x00\0\0\0\0\0\0\0\0")),
            finished: ms(0),
            keep_left: ms(1000),
        }))
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        Ok(Some(RecordView::new(key, State::Done)))
    }

    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        Ok(Arc::new(self.clone()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_fooled_keeps_nobody_for_ever() {
    for leads_on in [false, true] {
        let app = App::new();
        let layer = IdempotencyLayer::builder(Fooled { leads_on }).clock(app.clock.clone());
        let layer = layer.run_on(RunOn::Task).build().unwrap();
        let began = Instant::now();
        let told = ask(&KeyLookup::new(&layer), question("k")).await;
        told.assert_refused(503, "store-unavailable");
        assert!(
            began.elapsed() < ms(5000),
            "{leads_on}: {:?}",
            began.elapsed()
        );
    }
}
