//! The idempotency layers as an operator sees them: `/metrics` as Prometheus scrapes it, and `/board`.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use system_tests::client::{Call, get, post, until};
use system_tests::programs::Lab;

use super::engines::{Engine, on_each_engine};
use super::idempotency::record_of;
use super::{live_on, rows};

on_each_engine!(
    each_outcome_is_scraped_to_the_exact_number,
    store_calls_are_scraped_by_name_and_those_that_fail_too,
    the_begin_of_the_oldest_run_is_scraped_and_is_nought_after_a_panic_and_a_hang_up,
    a_waiter_shows_the_run_it_waits_for_and_that_one_its_marks,
    who_waits_for_the_store_shows_the_call,
);

fn order(lab: &Lab) -> Call {
    post(lab.address(), "/orders").key("an-order-8e03978e")
}

/// A scrape.
async fn scrape(lab: &Lab) -> String {
    let text = get(lab.address(), "/metrics").send().await;
    String::from_utf8(text.body.to_vec()).expect("it is text")
}

/// One sample of the layer of `/orders`; `None` where there is none.
fn sample(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let begin = format!("{name}{{");
    let labels: Vec<_> = [&[("layer", "orders")], labels]
        .concat()
        .iter()
        .map(|(label, value)| format!("{label}=\"{value}\""))
        .collect();
    let mut found = text.lines().filter_map(|line| {
        let (told, value) = line.strip_prefix(&begin)?.rsplit_once("} ")?;
        let mut told: Vec<_> = told.split(',').collect();
        let mut wanted: Vec<_> = labels.iter().map(String::as_str).collect();
        told.sort_unstable();
        wanted.sort_unstable();
        (told == wanted).then(|| value.parse().expect("a number"))
    });
    found.next()
}

fn outcome(text: &str, outcome: &str) -> Option<f64> {
    sample(text, "idempotency_outcomes_total", &[("outcome", outcome)])
}

async fn each_outcome_is_scraped_to_the_exact_number(on: Engine) {
    let lab = on.lab(&["--max-response", "1KiB"]);
    let first = tokio::spawn(order(&lab).lab("delay=2000").send());
    until(
        "it runs",
        || live_on(&lab, "/orders"),
        |rows| rows.iter().any(|row| row["stage"] == "validated"),
    )
    .await;
    assert_eq!(order(&lab).send().await.code(), "in-progress");
    assert_eq!(first.await.expect("it was not stopped").status, 201);
    for _ in 0..3 {
        assert!(order(&lab).send().await.replayed());
    }
    for _ in 0..2 {
        assert_eq!(order(&lab).body("other").send().await.code(), "key-reused");
    }
    let named = |key: &str| post(lab.address(), "/orders").key(key);
    let lost = named("lost-8e03978e");
    assert_eq!(
        lost.lab("commit&panic").send().await.code(),
        "handler-panicked"
    );
    let lost = named("lost-8e03978e").send().await;
    assert_eq!(lost.code(), "outcome-unknown");
    let big = named("big-8e03978e").lab("size=5000").send().await;
    assert_eq!(big.status, 201);
    let big = named("big-8e03978e").send().await;
    assert_eq!(big.code(), "response-not-kept");
    let failed = named("failed-8e03978e").lab("status=503").send().await;
    assert_eq!(failed.status, 503);
    assert_eq!(named("a,b").send().await.code(), "key-invalid");
    post(lab.address(), "/faults?store=down").send().await;
    assert_eq!(order(&lab).send().await.code(), "store-unavailable");

    let text = scrape(&lab).await;
    for (name, count) in [
        ("runs", 4.0),
        ("kept", 1.0),
        ("replays", 3.0),
        ("in_progress", 1.0),
        ("key_reused", 2.0),
        ("panics", 1.0),
        ("outcome_unknown", 1.0),
        ("tombstones", 1.0),
        ("not_kept", 1.0),
        // The panic's, which leaves it unknown, and the failure's.
        ("released", 2.0),
        ("other_refusals", 1.0),
        ("store_failures", 1.0),
    ] {
        assert_eq!(outcome(&text, name), Some(count), "{name}: {text}");
    }
    for none in ["takeovers", "superseded", "unconfirmed", "unprotected"] {
        assert_eq!(outcome(&text, none), None, "{none}: {text}");
    }
    assert!(!text.contains("8e03978e"), "a key is no label: {text}");
}

async fn store_calls_are_scraped_by_name_and_those_that_fail_too(on: Engine) {
    let lab = on.lab(&[]);
    order(&lab).lab("commit").send().await;
    let failing = post(lab.address(), "/orders").key("failing-8e03978e");
    failing.lab("status=503").send().await;
    for _ in 0..3 {
        assert!(order(&lab).send().await.replayed());
    }
    post(lab.address(), "/faults?store=down").send().await;
    assert_eq!(order(&lab).send().await.code(), "store-unavailable");

    let text = scrape(&lab).await;
    let timed = |part: &str, call: &str, ok: &str| {
        let name = format!("idempotency_store_seconds_{part}");
        sample(&text, &name, &[("call", call), ("ok", ok)])
    };
    for (call, count) in [
        ("claim", 5.0),
        ("mark", 1.0),
        ("finish", 1.0),
        ("release", 1.0),
    ] {
        assert_eq!(timed("count", call, "true"), Some(count), "{call}: {text}");
        let sum = timed("sum", call, "true");
        assert!(sum.is_some_and(|s| s > 0.0 && s < 10.0), "{call}: {text}");
    }
    assert!(timed("count", "claim", "false") >= Some(1.0), "{text}");
    assert_eq!(timed("count", "finish", "false"), None, "{text}");
}

async fn the_begin_of_the_oldest_run_is_scraped_and_is_nought_after_a_panic_and_a_hang_up(
    on: Engine,
) {
    let lab = on.lab(&[]);
    let gauges = async || {
        let text = scrape(&lab).await;
        let gauge = |name: &str| sample(&text, name, &[]).unwrap_or(0.0);
        let runs = gauge("idempotency_runs_in_flight");
        (runs, gauge("idempotency_oldest_run_start_seconds"))
    };
    for (key, flags, hangs_up) in [
        ("panics-8e03978e", "delay=3000&panic", false),
        ("runs-on-8e03978e", "delay=3000", true),
    ] {
        let before = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        let call = post(lab.address(), "/orders").key(key).lab(flags);
        let caller = tokio::spawn(call.send());
        let (_, began) = until("it runs", &gauges, |(runs, _)| *runs == 1.0).await;
        let late = began - before.as_secs_f64();
        assert!((-0.1..60.0).contains(&late), "{key}: {late}");
        if hangs_up {
            caller.abort();
        }
        // While it goes the instant stands, so that its age rises by itself.
        assert_eq!(gauges().await, (1.0, began), "{key}");
        let over = until("it is over", &gauges, |(runs, _)| *runs == 0.0).await;
        assert_eq!(over, (0.0, 0.0), "{key}");
    }
}

fn at(rows: &[Value], stage: &str) -> Vec<Value> {
    let rows = rows.iter().filter(|row| row["stage"] == stage);
    rows.cloned().collect()
}

async fn a_waiter_shows_the_run_it_waits_for_and_that_one_its_marks(on: Engine) {
    let place = on.place();
    let lab = place.lab(&["--on-busy", "wait:60s"]);
    let first = order(&lab).lab("mark=upstream_called&delay=8000");
    let first = tokio::spawn(first.send());
    let live = || live_on(&lab, "/orders");
    let running = until("it runs", live, |rows| {
        at(rows, "upstream_called").len() == 1
    })
    .await;
    assert!(running[0]["wait"].is_null(), "{running:?}");
    let waiter = tokio::spawn(order(&lab).send());
    let seen = until("one waits", live, |rows| {
        rows.iter().any(|row| row["wait"]["reason"] == "replay")
    })
    .await;
    let waiting: Vec<_> = seen.iter().filter(|row| !row["wait"].is_null()).collect();
    let prefix = &record_of(&place, "an-order-8e03978e")[..8];
    assert_eq!(waiting.len(), 1, "{seen:?}");
    assert_eq!(waiting[0]["wait"]["blocker"], prefix, "{seen:?}");
    assert_eq!(waiting[0]["stage"], "received", "it does not run");

    assert_eq!(first.await.expect("it was not stopped").status, 201);
    assert!(waiter.await.expect("it was not stopped").replayed());
    let done = until(
        "both are done",
        || rows(&lab, "recent", "outcome=done"),
        |rows| rows.len() == 2,
    )
    .await;
    let marked = |name: &str| {
        done.iter()
            .filter(|row| row["stages"][name].is_f64())
            .count()
    };
    for (stage, rows) in [("received", 2), ("validated", 1), ("upstream_called", 1)] {
        assert_eq!(marked(stage), rows, "{stage}: {done:?}");
    }
}

async fn who_waits_for_the_store_shows_the_call(on: Engine) {
    let lab = on.lab(&[]);
    post(lab.address(), "/faults?store=delay:1500").send().await;
    let asked = tokio::spawn(order(&lab).send());
    let live = || live_on(&lab, "/orders");
    for call in ["claim", "finish"] {
        let rows = until(call, live, |rows| {
            rows.iter().any(|row| row["wait"]["blocker"] == call)
        })
        .await;
        assert_eq!(rows[0]["wait"]["reason"], "store", "{rows:?}");
    }
    assert_eq!(asked.await.expect("it was not stopped").status, 201);
}
