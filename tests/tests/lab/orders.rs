//! `/orders` and `/refunds`: idempotent by client key.

use std::time::Duration;

use http::Method;
use system_tests::client::{call, get, post, until};
use system_tests::programs::Lab;

use super::engines::{Engine, on_each_engine};
use super::{effects, number};

on_each_engine!(
    a_repeat_gets_the_first_answer,
    another_payload_under_the_key_is_422_also_while_the_first_runs,
    fifty_at_once_run_once,
    waiting_repeats_get_the_answer_when_it_is_there,
    a_hang_up_does_not_stop_the_handler,
    failures_and_rejections_free_the_key,
    tenants_do_not_meet_and_denied_ones_get_nothing,
    a_large_response_is_sent_whole_and_never_run_again;
    with short spans:
    a_lapsed_run_is_taken_over_and_its_late_answer_is_not_kept,
    an_outcome_is_forgotten_after_its_retention_only,
);

async fn a_repeat_gets_the_first_answer(on: Engine) {
    let lab = on.lab(&[]);
    let first = post(lab.address(), "/orders")
        .key("k")
        .body("{\"a\":1}")
        .send()
        .await;
    assert_eq!(first.status, 201);
    assert!(!first.headers.contains_key("idempotent-replayed"));
    assert_eq!(first.json()["tenant"], "anonymous");
    for key in ["k", "\"k\""] {
        let again = post(lab.address(), "/orders")
            .key(key)
            .body("{\"a\":1}")
            .lab("status=500")
            .send()
            .await;
        assert!(again.replayed(), "{again:?}");
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        for name in ["location", "etag", "content-type", "x-name"] {
            assert_eq!(again.headers[name], first.headers[name], "{name}");
        }
        let links = |answer: &system_tests::client::Answer| {
            answer
                .headers
                .get_all("link")
                .iter()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(links(&again), links(&first));
        assert_eq!(links(&again).len(), 2);
        assert_eq!(again.headers["x-name"].as_bytes(), b"caf\xE9");
        assert!(!again.headers.contains_key("set-cookie"));
    }
    assert_eq!(effects(&lab, "POST /orders").await, 1);
}

async fn another_payload_under_the_key_is_422_also_while_the_first_runs(on: Engine) {
    let lab = on.lab(&[]);
    let first = tokio::spawn(
        post(lab.address(), "/orders")
            .key("k")
            .body("a")
            .lab("delay=2000")
            .send(),
    );
    until(
        "the first runs",
        || effects(&lab, "POST /orders"),
        |n| *n == 1,
    )
    .await;
    for call in [
        post(lab.address(), "/orders").key("k").body("b"),
        post(lab.address(), "/orders?x=1").key("k").body("a"),
        post(lab.address(), "/refunds").key("k").body("a"),
        post(lab.address(), "/v1/orders").key("k").body("a"),
        post(lab.address(), "/orders")
            .key("k")
            .body("a")
            .header("content-type", "text/plain"),
        call(lab.address(), Method::PUT, "/orders")
            .key("k")
            .body("a"),
    ] {
        assert_eq!(call.send().await.code(), "key-reused");
    }
    let busy = post(lab.address(), "/orders")
        .key("k")
        .body("a")
        .send()
        .await;
    assert_eq!(
        (busy.status.as_u16(), busy.code().as_str()),
        (409, "in-progress")
    );
    let after: u64 = busy.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=60).contains(&after), "{after}");
    assert_eq!(first.await.unwrap().status, 201);
    assert_eq!(
        post(lab.address(), "/orders")
            .key("k")
            .body("b")
            .send()
            .await
            .code(),
        "key-reused"
    );
    assert_eq!(
        number(&get(lab.address(), "/effects").send().await, "total"),
        1
    );
}

async fn fifty_at_once_run_once(on: Engine) {
    let lab = on.lab(&[]);
    let calls = (0..50).map(|_| {
        tokio::spawn(
            post(lab.address(), "/orders")
                .key("k")
                .lab("delay=300")
                .send(),
        )
    });
    let answers = futures_util::future::join_all(calls).await;
    let mut fresh = 0;
    for answer in answers.into_iter().map(Result::unwrap) {
        match answer.status.as_u16() {
            201 if answer.replayed() => {}
            201 => fresh += 1,
            409 => assert_eq!(answer.code(), "in-progress"),
            _ => panic!("{answer:?}"),
        }
    }
    assert_eq!(fresh, 1);
    assert_eq!(effects(&lab, "POST /orders").await, 1);
}

async fn waiting_repeats_get_the_answer_when_it_is_there(on: Engine) {
    let lab = on.lab(&["--on-busy", "wait:20s"]);
    let calls = (0..10).map(|_| {
        tokio::spawn(
            post(lab.address(), "/orders")
                .key("k")
                .lab("delay=300")
                .send(),
        )
    });
    let answers = futures_util::future::join_all(calls).await;
    let replays = answers
        .iter()
        .filter(|a| a.as_ref().unwrap().replayed())
        .count();
    assert!(answers.iter().all(|a| a.as_ref().unwrap().status == 201));
    assert_eq!(replays, 9);
    assert_eq!(effects(&lab, "POST /orders").await, 1);

    let lab = on.lab(&["--on-busy", "wait:200ms"]);
    let first = tokio::spawn(
        post(lab.address(), "/orders")
            .key("k")
            .lab("delay=20000")
            .send(),
    );
    until(
        "the first runs",
        || effects(&lab, "POST /orders"),
        |n| *n == 1,
    )
    .await;
    let begun = std::time::Instant::now();
    assert_eq!(
        post(lab.address(), "/orders").key("k").send().await.code(),
        "in-progress"
    );
    assert!(begun.elapsed() >= Duration::from_millis(200));
    first.abort();
}

async fn a_hang_up_does_not_stop_the_handler(on: Engine) {
    let lab = on.lab(&[]);
    let first = tokio::spawn(
        post(lab.address(), "/orders")
            .key("k")
            .lab("delay=500")
            .open(),
    );
    until(
        "the handler runs",
        || effects(&lab, "POST /orders"),
        |n| *n == 1,
    )
    .await;
    first.abort();
    let ask = || post(lab.address(), "/orders").key("k").send();
    let answer = until("the outcome is kept", ask, |answer| answer.status == 201).await;
    assert!(answer.replayed());
    assert_eq!(effects(&lab, "POST /orders").await, 1);
}

async fn failures_and_rejections_free_the_key(on: Engine) {
    let lab = on.lab(&[]);
    for flags in [
        "panic",
        "status=500",
        "status=503",
        "status=429",
        "reject=400",
    ] {
        let first = post(lab.address(), "/orders")
            .key(flags)
            .body("a")
            .lab(flags)
            .send()
            .await;
        assert!(
            first.status.is_client_error() || first.status.is_server_error(),
            "{flags}"
        );
        let second = post(lab.address(), "/orders")
            .key(flags)
            .body("b")
            .send()
            .await;
        assert_eq!(second.status, 201, "{flags}: {second:?}");
        assert!(!second.replayed(), "{flags}");
    }
    let first = post(lab.address(), "/orders")
        .key("404")
        .lab("status=404")
        .send()
        .await;
    let second = post(lab.address(), "/orders").key("404").send().await;
    assert_eq!(
        (
            first.status.as_u16(),
            second.status.as_u16(),
            second.replayed()
        ),
        (404, 404, true)
    );
}

async fn tenants_do_not_meet_and_denied_ones_get_nothing(on: Engine) {
    let lab = on.lab(&[]);
    for tenant in ["t1", "t2"] {
        let answer = post(lab.address(), "/orders")
            .key("k")
            .header("x-tenant", tenant)
            .send()
            .await;
        assert_eq!(answer.json()["tenant"], tenant);
        assert!(!answer.replayed());
    }
    assert_eq!(effects(&lab, "POST /orders").await, 2);
    for tenant in [b"t\xE8", b"t\xE9"] {
        let answer = post(lab.address(), "/orders")
            .key("k")
            .header("x-tenant", tenant)
            .send()
            .await;
        assert!(
            !answer.replayed(),
            "two tenants are not one because neither is UTF-8"
        );
    }
    let denied = post(lab.address(), "/orders")
        .key("k")
        .header("x-tenant", "t1")
        .header("x-deny", "1")
        .send()
        .await;
    assert_eq!(denied.status, 403);

    let strict = on.lab(&["--require-tenant", "on"]);
    let answer = post(strict.address(), "/orders").key("k").send().await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (400, "scope-missing")
    );
    assert_eq!(effects(&strict, "POST /orders").await, 0);
}

#[tokio::test]
async fn safe_methods_are_not_touched() {
    let lab = Lab::start(&["--require-key", "on"]);
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        for _ in 0..2 {
            let answer = call(lab.address(), method.clone(), "/orders")
                .key("k")
                .send()
                .await;
            assert_eq!(answer.status, 200, "{method}");
            assert!(!answer.replayed());
        }
        assert_eq!(effects(&lab, &format!("{method} /orders")).await, 2);
    }
    let claims = get(lab.address(), "/claims").send().await.json();
    assert_eq!(claims.as_array().map(Vec::len), Some(0), "{claims}");
    assert_eq!(
        post(lab.address(), "/orders").send().await.code(),
        "key-missing"
    );
}

#[tokio::test]
async fn bad_keys_are_refused_without_effect() {
    let lab = Lab::start(&[]);
    let long = "k".repeat(256);
    for key in [
        &b""[..],
        b"\"\"",
        b"   ",
        long.as_bytes(),
        b"caf\xE9",
        b"a,b",
        b"\"a",
        b"\"a\", \"b\"",
    ] {
        let answer = post(lab.address(), "/orders")
            .header("idempotency-key", key)
            .send()
            .await;
        assert_eq!(answer.status, 400, "{key:?}");
        assert_eq!(answer.code(), "key-invalid", "{key:?}");
    }
    let two = post(lab.address(), "/orders")
        .key("a")
        .key("a")
        .send()
        .await;
    assert_eq!(two.code(), "key-invalid");
    assert_eq!(effects(&lab, "POST /orders").await, 0);
    for key in ["order:1/2", &"k".repeat(255)] {
        assert_eq!(
            post(lab.address(), "/orders").key(key).send().await.status,
            201,
            "{key}"
        );
    }

    let strict = Lab::start(&["--keys", "strict"]);
    assert_eq!(
        post(strict.address(), "/orders")
            .key("bare")
            .send()
            .await
            .code(),
        "key-invalid"
    );
    assert_eq!(
        post(strict.address(), "/orders")
            .key("\"quoted\"")
            .send()
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn a_large_upload_is_413_and_stores_nothing() {
    let lab = Lab::start(&["--max-body", "1KiB"]);
    let answer = post(lab.address(), "/orders")
        .key("k")
        .body(vec![b'x'; 1025])
        .send()
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (413, "body-too-large")
    );
    assert_eq!(effects(&lab, "POST /orders").await, 0);
    assert_eq!(
        post(lab.address(), "/orders")
            .key("k")
            .body(vec![b'x'; 1024])
            .send()
            .await
            .status,
        201
    );
}

async fn a_large_response_is_sent_whole_and_never_run_again(on: Engine) {
    let lab = on.lab(&["--max-response", "1KiB"]);
    for (key, flags) in [
        ("long", "size=10000"),
        ("one-over", "size=1025"),
        ("unknown", "size=10000&nolen&chunks=10"),
    ] {
        let first = post(lab.address(), "/orders")
            .key(key)
            .lab(flags)
            .send()
            .await;
        assert_eq!(first.status, 201, "{key}");
        assert!(first.complete && first.body.len() >= 1025, "{key}");
        let again = post(lab.address(), "/orders").key(key).send().await;
        assert_eq!(
            (again.status.as_u16(), again.code().as_str()),
            (409, "response-not-kept"),
            "{key}"
        );
    }
    let first = post(lab.address(), "/orders")
        .key("fits")
        .lab("size=1024&nolen&chunks=4")
        .send()
        .await;
    let again = post(lab.address(), "/orders").key("fits").send().await;
    assert!(again.replayed());
    assert_eq!(first.body, again.body);
    assert_eq!(effects(&lab, "POST /orders").await, 4);
}

async fn a_lapsed_run_is_taken_over_and_its_late_answer_is_not_kept(on: Engine) {
    let lab = on.lab(&["--lease", "2s", "--renew", "off"]);
    let first = tokio::spawn(
        post(lab.address(), "/orders")
            .key("k")
            .lab("delay=8000")
            .send(),
    );
    until(
        "the first runs",
        || effects(&lab, "POST /orders"),
        |n| *n == 1,
    )
    .await;
    let ask = || {
        post(lab.address(), "/orders")
            .key("k")
            .lab("delay=9000")
            .send()
    };
    let second = until("the second takes over", ask, |answer| answer.status == 201).await;
    assert_eq!(number(&second, "n"), 2);
    let late = first.await.unwrap();
    assert!(
        late.status == 409 || late.body == second.body,
        "the late owner answers as a repeat would: {late:?}"
    );
    let third = post(lab.address(), "/orders").key("k").send().await;
    assert!(third.replayed());
    assert_eq!(third.body, second.body);
    assert_eq!(effects(&lab, "POST /orders").await, 2);
}

async fn an_outcome_is_forgotten_after_its_retention_only(on: Engine) {
    let lab = on.lab(&["--retention", "3s"]);
    assert_eq!(
        post(lab.address(), "/orders").key("k").send().await.status,
        201
    );
    assert!(
        post(lab.address(), "/orders")
            .key("k")
            .send()
            .await
            .replayed()
    );
    let ask = || post(lab.address(), "/orders").key("k").send();
    until("it runs again", ask, |answer| {
        answer.status == 201 && !answer.replayed()
    })
    .await;
    assert_eq!(effects(&lab, "POST /orders").await, 2);
}

#[tokio::test]
async fn the_memory_limit_refuses_new_claims_and_drops_no_outcome() {
    let lab = Lab::start(&["--memory-limit", "256KiB"]);
    let mut kept = Vec::new();
    let mut refused = 0;
    for i in 0..5_000 {
        let key = format!("key-{i}");
        let answer = post(lab.address(), "/orders").key(&key).send().await;
        match answer.status.as_u16() {
            201 => kept.push(key),
            503 => {
                assert!(answer.headers.contains_key("retry-after"));
                refused += 1;
                if refused == 3 {
                    break;
                }
            }
            _ => panic!("{answer:?}"),
        }
    }
    assert_eq!(refused, 3, "the limit was never reached");
    assert!(kept.len() > 20, "only {} fit", kept.len());
    let ran = effects(&lab, "POST /orders").await;
    assert_eq!(ran, kept.len() as u64);
    for key in [kept.first(), kept.last()].into_iter().flatten() {
        let again = post(lab.address(), "/orders").key(key).send().await;
        assert!(
            again.replayed() || again.code() == "response-not-kept",
            "{again:?}"
        );
    }
    assert_eq!(effects(&lab, "POST /orders").await, ran);
}
