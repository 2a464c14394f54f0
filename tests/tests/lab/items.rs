//! `/items/{id}`: single flight over a real origin.

use futures_util::future::join_all;
use http::Method;
use system_tests::client::{Answer, Call, call, get, until};
use system_tests::programs::Lab;

use super::{effects, live_on};

async fn all(calls: impl IntoIterator<Item = Call>) -> Vec<Answer> {
    join_all(calls.into_iter().map(|c| tokio::spawn(c.send())))
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

/// How many rows wait for a flight.
fn waiting(rows: &[serde_json::Value]) -> usize {
    rows.iter()
        .filter(|row| row["wait"]["reason"] == "flight")
        .count()
}

#[tokio::test]
async fn a_hundred_readers_make_one_call() {
    let lab = Lab::start(&[]);
    let answers = all((0..100).map(|_| get(lab.address(), "/items/7").lab("delay=3000"))).await;
    assert!(
        answers
            .iter()
            .all(|a| a.status == 200 && a.body == answers[0].body)
    );
    assert_eq!(effects(&lab, "GET /items/7").await, 1);
    let collapsed = answers.iter().filter(|a| {
        a.headers
            .get("cache-status")
            .is_some_and(|v| v.to_str().unwrap().contains("collapsed"))
    });
    assert_eq!(collapsed.count(), 99);
}

#[tokio::test]
async fn failures_and_panics_are_shared_and_never_kept() {
    let lab = Lab::start(&[]);
    for (flags, status) in [("delay=2000&status=503", 503), ("delay=2000&panic", 500)] {
        let before = effects(&lab, "GET /items/7").await;
        let answers = all((0..20).map(|_| get(lab.address(), "/items/7").lab(flags))).await;
        assert!(
            answers.iter().all(|a| a.status == status),
            "{flags}: {answers:?}"
        );
        assert_eq!(effects(&lab, "GET /items/7").await, before + 1, "{flags}");
        assert_eq!(get(lab.address(), "/items/7").send().await.status, 200);
    }
}

#[tokio::test]
async fn a_leader_who_leaves_takes_nobody_along() {
    let lab = Lab::start(&[]);
    let leader = tokio::spawn(get(lab.address(), "/items/7").lab("delay=5000").send());
    until(
        "the leader runs",
        || effects(&lab, "GET /items/7"),
        |n| *n == 1,
    )
    .await;
    let followers: Vec<_> = (0..5)
        .map(|_| tokio::spawn(get(lab.address(), "/items/7").send()))
        .collect();
    until(
        "five have joined",
        || live_on(&lab, "/items/{id}"),
        |rows| waiting(rows) == 5,
    )
    .await;
    leader.abort();
    for follower in followers {
        assert_eq!(follower.await.unwrap().status, 200);
    }
    assert_eq!(effects(&lab, "GET /items/7").await, 1);
}

#[tokio::test]
async fn private_requests_and_answers_are_not_shared() {
    let lab = Lab::start(&[]);
    let tokens = (0..5).map(|i| {
        get(lab.address(), "/items/1")
            .header("authorization", format!("Bearer {i}"))
            .lab("delay=300")
    });
    let answers = all(tokens).await;
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(answer.json()["authorization"], format!("Bearer {i}"));
    }
    assert_eq!(effects(&lab, "GET /items/1").await, 5);

    for (id, flags) in [
        (2, "delay=300&header=set-cookie:a=1"),
        (3, "delay=300&header=cache-control:private"),
    ] {
        let path = format!("/items/{id}");
        let answers = all((0..5).map(|_| get(lab.address(), &path).lab(flags))).await;
        assert!(answers.iter().all(|a| a.status == 200));
        assert_eq!(effects(&lab, &format!("GET {path}")).await, 5, "{flags}");
    }

    let ranges = all((0..3).map(|_| {
        get(lab.address(), "/items/4")
            .header("range", "bytes=0-3")
            .lab("delay=200")
    }))
    .await;
    assert!(ranges.iter().all(|a| a.status == 206 && a.body.len() == 4));
    assert_eq!(effects(&lab, "GET /items/4").await, 3);

    let posts =
        all((0..3).map(|_| call(lab.address(), Method::POST, "/items/5").lab("delay=200"))).await;
    assert!(posts.iter().all(|a| a.status == 200));
    assert_eq!(effects(&lab, "POST /items/5").await, 3);
}

#[tokio::test]
async fn head_and_get_are_two_calls() {
    let lab = Lab::start(&[]);
    let calls = [Method::HEAD, Method::GET, Method::HEAD, Method::GET];
    let answers = all(calls.map(|m| call(lab.address(), m, "/items/7").lab("delay=2000"))).await;
    assert!(answers[0].body.is_empty() && answers[2].body.is_empty());
    assert!(!answers[1].body.is_empty() && answers[1].body == answers[3].body);
    assert_eq!(effects(&lab, "GET /items/7").await, 1);
    assert_eq!(effects(&lab, "HEAD /items/7").await, 1);
}

#[tokio::test]
async fn the_origin_answers_conditions_and_ranges() {
    let lab = Lab::start(&[]);
    let whole = get(lab.address(), "/items/7").lab("size=100").send().await;
    assert_eq!(
        (whole.status.as_u16(), &whole.headers["etag"]),
        (200, &"\"v1\"".parse().unwrap())
    );
    let with = |name: &'static str, value: &'static str| {
        get(lab.address(), "/items/7")
            .lab("size=100")
            .header(name, value)
            .send()
    };
    let fresh = with("if-none-match", "\"v1\"").await;
    assert_eq!((fresh.status.as_u16(), fresh.body.len()), (304, 0));
    let part = with("range", "bytes=90-").await;
    assert_eq!((part.status.as_u16(), part.body.len()), (206, 10));
    assert_eq!(part.headers["content-range"], "bytes 90-99/100");
    let off = with("range", "bytes=100-").await;
    assert_eq!(
        (off.status.as_u16(), &off.headers["content-range"]),
        (416, &"bytes */100".parse().unwrap())
    );
    assert_eq!(with("range", "bytes=0-1,4-5").await.status, 200);
    assert_eq!(effects(&lab, "GET /items/7").await, 5);
}

#[tokio::test]
async fn followers_time_out_and_old_flights_end() {
    let lab = Lab::start(&["--flight-wait", "200ms", "--flight-age", "60s"]);
    let leader = tokio::spawn(get(lab.address(), "/items/7").lab("delay=6000").send());
    until(
        "the leader runs",
        || effects(&lab, "GET /items/7"),
        |n| *n == 1,
    )
    .await;
    let followers = all((0..10).map(|_| get(lab.address(), "/items/7").lab("delay=2500"))).await;
    let waited_out = followers
        .iter()
        .filter(|a| a.status == 503)
        .inspect(|a| assert_eq!(a.code(), "wait-timeout"));
    assert!(waited_out.count() >= 8, "{followers:?}");
    assert!(
        effects(&lab, "GET /items/7").await <= 2,
        "at most one new leader"
    );
    assert_eq!(
        leader.await.unwrap().status,
        200,
        "the wait limit is none of the first caller's"
    );

    let lab = Lab::start(&["--flight-age", "300ms"]);
    let hung = tokio::spawn(get(lab.address(), "/items/7").lab("hang").send());
    until(
        "the leader runs",
        || effects(&lab, "GET /items/7"),
        |n| *n == 1,
    )
    .await;
    let follower = get(lab.address(), "/items/7").send().await;
    assert!(
        follower.status == 504 || follower.status == 200,
        "{follower:?}"
    );
    let fresh = until(
        "newcomers get a new flight",
        || get(lab.address(), "/items/7").send(),
        |a| a.status == 200,
    );
    assert_eq!(fresh.await.status, 200);
    hung.abort();
}

#[tokio::test]
async fn too_many_waiters_are_refused() {
    let lab = Lab::start(&["--max-waiters", "3"]);
    let leader = tokio::spawn(get(lab.address(), "/items/7").lab("delay=4000").send());
    until(
        "the leader runs",
        || effects(&lab, "GET /items/7"),
        |n| *n == 1,
    )
    .await;
    let followers: Vec<_> = (0..3)
        .map(|_| tokio::spawn(get(lab.address(), "/items/7").send()))
        .collect();
    until(
        "three wait",
        || live_on(&lab, "/items/{id}"),
        |rows| {
            rows.iter()
                .filter(|row| row["wait"]["reason"] == "flight")
                .count()
                == 3
        },
    )
    .await;
    assert_eq!(
        get(lab.address(), "/items/7").send().await.code(),
        "overloaded"
    );
    for call in followers.into_iter().chain([leader]) {
        assert_eq!(call.await.unwrap().status, 200);
    }
}
