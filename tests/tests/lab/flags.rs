//! Misbehaviour on command.

use std::time::{Duration, Instant};

use http::Method;
use system_tests::client::{call, get, post, until};
use system_tests::programs::Lab;

use super::{effects, number};

#[tokio::test]
async fn an_unknown_or_bad_flag_is_400_without_effect() {
    let lab = Lab::start(&[]);
    for flags in [
        "warp=9",
        "delay=soon",
        "status=42",
        "mark=nowhere",
        "size=-1",
        "chunks=0",
        "commit=soon",
    ] {
        let answer = post(lab.address(), "/orders")
            .key("bad")
            .lab(flags)
            .send()
            .await;
        assert_eq!(answer.status, 400, "{flags}");
    }
    assert_eq!(effects(&lab, "POST /orders").await, 0);
    let fresh = post(lab.address(), "/orders").key("bad").send().await;
    assert_eq!(fresh.status, 201, "nothing was stored under the key");
    assert!(!fresh.replayed());
}

#[tokio::test]
async fn status_size_type_and_headers_are_as_asked() {
    let lab = Lab::start(&[]);
    let answer = get(lab.address(), "/orders?status=404")
        .lab("status=418&size=100000&ctype=text/plain&header=x-a:1&header=x-a:2")
        .send()
        .await;
    assert_eq!(answer.status, 418, "the header wins");
    assert_eq!(answer.body.len(), 100_000);
    assert_eq!(answer.headers["content-type"], "text/plain");
    assert_eq!(answer.headers["content-length"], "100000");
    assert_eq!(answer.headers.get_all("x-a").iter().count(), 2);

    let answer = get(lab.address(), "/orders")
        .lab("vary=accept")
        .header("accept", "a/b")
        .send()
        .await;
    assert_eq!(answer.headers["vary"], "accept");
    assert_eq!(answer.json()["vary"], "a/b");
}

#[tokio::test]
async fn bodies_come_in_frames_and_may_fail() {
    let lab = Lab::start(&[]);
    let begun = Instant::now();
    let answer = get(lab.address(), "/orders")
        .lab("size=1000&chunks=4&chunk_delay=50&nolen")
        .send()
        .await;
    assert!(
        begun.elapsed() >= Duration::from_millis(150),
        "three pauses"
    );
    assert_eq!((answer.body.len(), answer.complete), (1000, true));
    assert!(!answer.headers.contains_key("content-length"));

    let answer = get(lab.address(), "/orders")
        .lab("size=1000&chunks=4&body_error=2")
        .send()
        .await;
    assert_eq!((answer.body.len(), answer.complete), (500, false));
}

#[tokio::test]
async fn reject_answers_before_it_counts() {
    let lab = Lab::start(&[]);
    let answer = post(lab.address(), "/orders")
        .lab("reject=400")
        .send()
        .await;
    assert_eq!(answer.status, 400);
    assert_eq!(effects(&lab, "POST /orders").await, 0);
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_lab_lives_on() {
    let lab = Lab::start(&[]);
    let answer = get(lab.address(), "/orders").lab("panic").send().await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (500, "handler-panicked")
    );
    let recent = super::rows(&lab, "recent", "outcome=panicked").await;
    assert_eq!(recent.len(), 1);
    assert_eq!(get(lab.address(), "/orders").send().await.status, 200);
}

#[tokio::test]
async fn effects_are_counted_by_method_and_original_path() {
    let lab = Lab::start(&[]);
    for path in ["/orders", "/v1/orders", "/v1/orders?x=1", "/v2/refunds"] {
        assert_eq!(post(lab.address(), path).send().await.status, 201, "{path}");
    }
    assert_eq!(
        call(lab.address(), Method::HEAD, "/orders")
            .send()
            .await
            .status,
        200
    );
    let all = get(lab.address(), "/effects").send().await;
    assert_eq!(number(&all, "total"), 5);
    let by = &all.json()["by"];
    for (name, n) in [
        ("POST /orders", 1),
        ("POST /v1/orders", 2),
        ("POST /v2/refunds", 1),
        ("HEAD /orders", 1),
    ] {
        assert_eq!(by[name], n, "{name}: {by}");
    }
    assert!(
        post(lab.address(), "/effects/reset")
            .send()
            .await
            .status
            .is_success()
    );
    assert_eq!(
        number(&get(lab.address(), "/effects").send().await, "total"),
        0
    );
}

#[tokio::test]
async fn marks_are_a_tenth_of_the_delay_apart() {
    let lab = Lab::start(&[]);
    let slow = tokio::spawn(
        post(lab.address(), "/orders")
            .lab("mark=validated,upstream_called,persisted&delay=8000")
            .send(),
    );
    let seen = until(
        "the row reaches its last mark",
        || super::live_on(&lab, "/orders"),
        |rows| rows.iter().any(|row| row["stage"] == "persisted"),
    )
    .await;
    assert_eq!(seen.len(), 1);
    assert_eq!(slow.await.unwrap().status, 201);
    let row = until(
        "the row ends",
        || super::rows(&lab, "recent", ""),
        |rows| rows.len() == 1,
    )
    .await;
    let ms = |stage: &str| {
        row[0]["stages"][stage]
            .as_f64()
            .unwrap_or_else(|| panic!("{stage}: {row:?}"))
    };
    assert!((790.0..2500.0).contains(&ms("validated")), "{row:?}");
    assert!((790.0..2500.0).contains(&ms("upstream_called")), "{row:?}");
    assert!(ms("persisted") >= 5500.0, "{row:?}");
}
