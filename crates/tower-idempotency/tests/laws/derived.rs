//! Keys that are derived from named fields, and keys that cannot name an intent.

use std::time::Duration;

use tower_claim::http::{Gate, Mode, Switch};
use tower_idempotency::{IdempotencyBuilder, OnWeakKey, RequestFields};

use crate::support::*;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn form(uri: &str, body: &'static str) -> Ask {
    post(uri).header(FORM.0, FORM.1).body(body)
}

fn by_month(app: &App) -> IdempotencyBuilder {
    let fields = RequestFields::new()
        .path("/rooms/{room}/invoices")
        .form("month");
    app.builder().derived_from(fields).first_payload_wins()
}

#[tokio::test(start_paused = true)]
async fn fields_of_path_and_body_make_one_key() {
    let app = App::new();
    let service = app.under(&by_month(&app).build().unwrap());
    let first = form("/rooms/7/invoices", "month=3&note=a")
        .send(&service)
        .await;
    first.assert_fresh(201);
    let again = form("/rooms/7/invoices", "note=b&month=%33").key("ignored");
    again.send(&service).await.assert_replay_of(&first);
    for other in [
        form("/rooms/8/invoices", "month=3"),
        form("/rooms/7/invoices", "month=4"),
        form("/rooms/7/invoices", "month=3").header("x-tenant", "t2"),
    ] {
        other.send(&service).await.assert_fresh(201);
    }
    assert_eq!(app.effects(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_absent_field_makes_no_key_and_a_malformed_one_is_refused() {
    let app = App::new();
    let service = app.under(&by_month(&app).build().unwrap());
    for ask in [
        form("/rooms/7/invoices", "note=a"),
        form("/rooms/7", "month=3"),
    ] {
        for _ in 0..2 {
            let answer = ask.send(&service).await;
            // The handler has got the whole body all the same.
            assert!(answer.text().contains("\"read\":"), "{}", answer.text());
            assert!(!answer.text().contains("\"read\":0"), "{}", answer.text());
            answer.assert_fresh(201);
        }
    }
    assert_eq!((app.effects(), app.records()), (4, 0));
    for malformed in ["month=3&month=4", "month=", "month=%ff"] {
        form("/rooms/7/invoices", malformed)
            .send(&service)
            .await
            .assert_refused(400, "key-invalid");
    }
    let service = app.under(&by_month(&app).require_key().build().unwrap());
    form("/rooms/7/invoices", "note=a")
        .send(&service)
        .await
        .assert_refused(400, "key-missing");
    assert_eq!(app.effects(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_field_of_a_protobuf_message_makes_a_key() {
    let app = App::new();
    let fields = RequestFields::new().protobuf("order", [1]);
    let layer = app.builder().derived_from(fields).first_payload_wins();
    let service = app.under(&layer.build().unwrap());
    let order = |kind: &str, message| {
        let ask = post("/shop.Shop/Order").header("content-type", kind);
        ask.body(message)
    };
    // {1: "ada-7", 2: 1}, then the same with {2: 2}, then {1: "ada-8"}.
    let kind = "application/x-protobuf";
    let first = order(kind, "\x0a\x05ada-7\x10\x01").send(&service).await;
    first.assert_fresh(201);
    let again = order(kind, "\x0a\x05ada-7\x10\x02").send(&service).await;
    again.assert_replay_of(&first);
    let other = order(kind, "\x0a\x05ada-8").send(&service).await;
    other.assert_fresh(201);
    // On gRPC behind its prefix, which tells that a message is compressed.
    let kind = "application/grpc+proto";
    let other = order(kind, "\0\0\0\0\x07\x0a\x05ada-9").flags("delay=1000");
    let again = order(kind, "\0\0\0\0\x09\x0a\x05ada-9\x10\x01");
    let (_, again) = tokio::join!(other.send(&service), async {
        tokio::time::sleep(ms(10)).await;
        again.send(&service).await
    });
    assert_eq!(again.headers["problem-code"], "in-progress");
    let compressed = order(kind, "\x01\0\0\0\x07\x0a\x05ada-9")
        .send(&service)
        .await;
    assert_eq!(compressed.headers["problem-code"], "key-invalid");
    assert_eq!(app.effects(), 3);
}

#[cfg(feature = "json")]
#[tokio::test(start_paused = true)]
async fn a_field_of_a_json_document_makes_a_key() {
    let app = App::new();
    let fields = RequestFields::new().json("/order/number");
    let service = app.under(&app.builder().derived_from(fields).build().unwrap());
    let first = post("/orders").body(r#"{"order":{"number":"A-7"}}"#);
    let answer = first.send(&service).await;
    answer.assert_fresh(201);
    first.send(&service).await.assert_replay_of(&answer);
    // One intent, another payload.
    post("/orders")
        .body(r#"{"order":{"number":"A-7"},"gift":true}"#)
        .send(&service)
        .await
        .assert_refused(422, "key-reused");
    post("/orders")
        .body(r#"{"order":"#)
        .send(&service)
        .await
        .assert_refused(400, "key-invalid");
    assert_eq!(app.effects(), 1);
}

/// Moves paused time to this long after the next border.
async fn after_the_border(app: &App, window: Duration, after: Duration) {
    let into = app.clock.unix_time().as_nanos() % window.as_nanos();
    let left = window - Duration::from_nanos(u64::try_from(into).unwrap());
    tokio::time::sleep(left + after).await;
}

#[tokio::test(start_paused = true)]
async fn the_next_window_is_another_intent_and_the_last_one_counts_for_its_overlap() {
    let (hour, minute) = (ms(3_600_000), ms(60_000));
    let app = App::new();
    let layer = by_month(&app).key_window(hour, minute).build().unwrap();
    let service = app.under(&layer);
    let ask = form("/rooms/7/invoices", "month=3");
    after_the_border(&app, hour, minute * 119 / 2).await;
    let first = ask.send(&service).await;
    first.assert_fresh(201);
    ask.send(&service).await.assert_replay_of(&first);

    after_the_border(&app, hour, minute / 2).await;
    ask.send(&service).await.assert_replay_of(&first);
    let other = form("/rooms/8/invoices", "month=3");
    let other_first = other.send(&service).await;
    other_first.assert_fresh(201);

    tokio::time::sleep(minute).await;
    ask.send(&service).await.assert_fresh(201);
    other.send(&service).await.assert_replay_of(&other_first);
    assert_eq!(app.effects(), 3);
}

/// A job of each day: yesterday's answer is not today's.
#[tokio::test(start_paused = true)]
async fn in_an_overlap_only_what_was_near_the_border_counts() {
    let (day, minute) = (ms(86_400_000), ms(60_000));
    let app = App::new();
    let layer = by_month(&app).key_window(day, minute);
    let layer = layer.build().unwrap();
    let service = app.under(&layer);
    let job = form("/rooms/7/invoices", "month=3");
    let fails = job.clone().flags("status=503");
    after_the_border(&app, day, ms(5_000)).await;
    let first = job.send(&service).await;
    first.assert_fresh(201);
    after_the_border(&app, day, ms(3_000)).await;
    fails.send(&service).await.assert_fresh(503);
    job.send(&service).await.assert_fresh(201);

    // What began long before the border, and ended just before it; and what still runs.
    let ended = form("/rooms/8/invoices", "month=3");
    let long = ended.clone().flags("delay=300000");
    let running = form("/rooms/9/invoices", "month=3");
    let longer = running.clone().flags("delay=600000");
    after_the_border(&app, day, day - ms(330_000)).await;
    let (begun, service_) = (longer.clone(), service.clone());
    let begun = tokio::spawn(async move { begun.send(&service_).await });
    let ended_first = long.send(&service).await;
    ended_first.assert_fresh(201);
    after_the_border(&app, day, ms(20_000)).await;
    let again = ended.send(&service).await;
    again.assert_replay_of(&ended_first);
    let busy = running.send(&service).await;
    busy.assert_refused(409, "in-progress");
    begun.await.unwrap().assert_fresh(201);
}

#[tokio::test(start_paused = true)]
async fn another_payload_is_not_of_the_last_window() {
    let (day, minute) = (ms(86_400_000), ms(60_000));
    let app = App::new();
    let fields = RequestFields::new().form("month");
    let layer = app.builder().derived_from(fields).key_window(day, minute);
    let service = app.under(&layer.build().unwrap());
    let ask = |body| form("/invoices", body);
    after_the_border(&app, day, day - ms(10_000)).await;
    let last = ask("month=3&sum=1").send(&service).await;
    last.assert_fresh(201);
    tokio::time::sleep(ms(20_000)).await;
    ask("month=3&sum=2").send(&service).await.assert_fresh(201);
    ask("month=3&sum=1")
        .send(&service)
        .await
        .assert_replay_of(&last);
}

/// A record that is forgotten within its window would let the same intent run again.
#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_for_its_window_and_the_overlap() {
    let (day, minute) = (ms(86_400_000), ms(60_000));
    let app = App::new();
    let refused = by_month(&app)
        .key_window(day * 30, minute)
        .retention(day * 30);
    let refused = refused.build().unwrap_err();
    assert_eq!(refused.setting(), "retention");
    assert!(refused.to_string().contains("2592060"), "{refused}");

    for builder in [
        by_month(&app).key_window(day * 30, minute),
        by_month(&app)
            .key_window(day * 30, minute)
            .retention(day * 30 + minute),
    ] {
        let layer = builder.build().unwrap();
        let policy = layer.policy().to_json();
        assert!(policy.contains("\"retention_seconds\":2592060"), "{policy}");
        let service = app.under(&layer);
        after_the_border(&app, day * 30, day).await;
        let first = form("/rooms/7/invoices", "month=3");
        let kept = first.send(&service).await;
        kept.assert_fresh(201);
        tokio::time::sleep(day * 2).await;
        first.send(&service).await.assert_replay_of(&kept);
        // A shorter window leaves the retention what it was.
        let layer = by_month(&app).key_window(ms(3_600_000), minute);
        let policy = layer.build().unwrap().policy().to_json();
        assert!(policy.contains("\"retention_seconds\":86400"), "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_derived_key_that_cannot_work_is_refused_when_built() {
    let app = App::new();
    let refused = |builder: IdempotencyBuilder| builder.build().unwrap_err().setting();
    let fields = || RequestFields::new().form("month");
    let without_scope = || {
        let store = tower_claim::MemoryStore::new();
        tower_idempotency::IdempotencyLayer::builder(store).derived_from(fields())
    };
    assert_eq!(refused(without_scope()), "derived_from");
    assert!(without_scope().one_tenant().build().is_ok());
    let none = app.builder().derived_from(RequestFields::new());
    assert_eq!(refused(none), "derived_from");
    // A path whose segments are not named would leave the key without them.
    for path in ["/invoices/:month", "/invoices", "/invoices/*month"] {
        let nameless = fields().path(path);
        let error = app.builder().derived_from(nameless).build().unwrap_err();
        assert_eq!(error.setting(), "derived_from");
        let told = error.to_string();
        assert!(told.contains(path) && told.contains("braces"), "{told}");
    }
    let window = |length, overlap| by_month(&app).key_window(ms(length), ms(overlap));
    assert_eq!(refused(window(0, 0)), "key_window");
    assert_eq!(refused(window(10, 10)), "key_window");
    assert_eq!(
        refused(app.builder().key_window(ms(10), ms(0))),
        "key_window"
    );
}

#[tokio::test(start_paused = true)]
async fn a_weak_key_is_counted_by_default_and_refused_when_asked() {
    let app = App::new();
    let now = app.clock.unix_time().as_secs().to_string();
    let weak = [now.as_str(), "42", "test"];
    let strong = "8e03978e-40d5-43dd-bc93-6894a57f9324";

    let warning = app.builder().build().unwrap();
    let service = app.under(&warning);
    for key in weak.into_iter().chain([strong]) {
        post("/orders")
            .key(key)
            .send(&service)
            .await
            .assert_fresh(201);
    }
    assert_eq!(warning.counts().weak_keys, 3);

    let refusing = app
        .builder()
        .on_weak_key(OnWeakKey::Refuse)
        .build()
        .unwrap();
    let service = app.under(&refusing);
    for (key, reason) in weak
        .into_iter()
        .zip(["timestamp", "counter", "low-entropy"])
    {
        let answer = post("/refunds").key(key).send(&service).await;
        answer.assert_refused(400, "key-invalid");
        let member = format!("\"reason\":\"{reason}\"");
        assert!(answer.text().contains(&member), "{}", answer.text());
    }
    post("/orders").key(strong).send(&service).await;
    assert_eq!((app.effects(), refusing.counts().weak_keys), (4, 3));

    let switch = Gate::new().switch(Switch::new(Mode::Observe));
    let observing = app.builder().gate(switch).on_weak_key(OnWeakKey::Refuse);
    let observing = observing.build().unwrap();
    let service = app.under(&observing);
    post("/orders")
        .key("42")
        .send(&service)
        .await
        .assert_fresh(201);
    assert_eq!(observing.counts().observed_refusals, 1);
}
