//! `/orders` and `/refunds`: idempotent by client key.

mod keys;
mod limits;

use std::time::Duration;

use http::Method;
use system_tests::client::{call, get, post, until};

use super::engines::{Engine, on_each_engine};
use super::{effects, number};

on_each_engine!(
    a_repeat_gets_the_first_answer,
    another_payload_under_the_key_is_422_also_while_the_first_runs,
    fifty_at_once_run_once,
    waiting_repeats_get_the_answer_when_it_is_there,
    a_hang_up_does_not_stop_the_handler,
    failures_and_rejections_free_the_key,
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
