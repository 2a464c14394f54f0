//! What is too large, too late, or too much.

use system_tests::client::{post, until};
use system_tests::programs::Lab;

use super::super::engines::{Engine, on_each_engine};
use super::super::{effects, number};

on_each_engine!(
    a_large_response_is_sent_whole_and_never_run_again;
    with short spans:
    a_lapsed_run_is_taken_over_and_its_late_answer_is_not_kept,
    an_outcome_is_forgotten_after_its_retention_only,
);

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
