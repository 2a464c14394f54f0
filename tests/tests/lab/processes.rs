//! Two labs on one store: what one has done, the other knows.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use serde_json::Value;
use system_tests::client::{Answer, Call, call, get, post, until};
use system_tests::programs::Lab;

use super::engines::{Engine, Own, on_each_shared_engine};
use super::{effects, number};

on_each_shared_engine!(
    a_repeat_at_the_other_process_is_replayed,
    a_first_run_is_in_progress_for_the_other_process,
    fifty_at_once_over_two_processes_run_once,
    an_announcement_is_sent_once_by_two_processes,
    a_killed_owner_is_taken_over_by_the_other_process,
    a_killed_run_is_run_again_by_the_other_process,
    the_ledger_is_shared,
    a_released_account_is_free_for_the_other_process,
    labs_of_two_namespaces_do_not_meet,
    operators_of_both_see_all_claims,
    a_store_that_stands_still_is_unavailable_and_comes_back,
);

fn put(lab: &Lab, path: &str) -> Call {
    call(lab.address(), Method::PUT, path)
}

async fn ledger(lab: &Lab, id: &str) -> Value {
    get(lab.address(), format!("/ledger/{id}"))
        .send()
        .await
        .json()
}

async fn a_repeat_at_the_other_process_is_replayed(on: Engine) {
    let place = on.place();
    let (a, b) = (place.lab(&[]), place.lab(&[]));
    let order = |lab: &Lab| post(lab.address(), "/orders").key("k").body("one");
    let first = order(&a).send().await;
    assert_eq!((first.status.as_u16(), first.replayed()), (201, false));
    let again = order(&b).send().await;
    assert_eq!((again.status.as_u16(), again.replayed()), (201, true));
    assert_eq!(
        again.body, first.body,
        "also its pid is that of the first run"
    );
    let other = post(b.address(), "/orders").key("k").body("two");
    assert_eq!(other.send().await.code(), "key-reused");
    assert_eq!(effects(&b, "POST /orders").await, 0);
}

async fn a_first_run_is_in_progress_for_the_other_process(on: Engine) {
    let place = on.place();
    let (a, b) = (place.lab(&[]), place.lab(&["--on-busy", "wait:10s"]));
    let c = place.lab(&[]);
    let first = post(a.address(), "/orders").key("k").lab("delay=5000");
    let first = tokio::spawn(first.send());
    until("it runs", || effects(&a, "POST /orders"), |n| *n == 1).await;
    let busy = post(c.address(), "/orders").key("k").send().await;
    assert_eq!(
        (busy.status.as_u16(), busy.code().as_str()),
        (409, "in-progress")
    );
    assert!(busy.headers.contains_key("retry-after"));
    let waiter = post(b.address(), "/orders").key("k").send().await;
    assert!(waiter.replayed(), "{waiter:?}");
    assert_eq!(waiter.body, first.await.expect("no panic").body);
}

async fn fifty_at_once_over_two_processes_run_once(on: Engine) {
    let place = on.place();
    let labs = [place.lab(&[]), place.lab(&[])];
    let calls = (0..50).map(|n| {
        let call = post(labs[n % 2].address(), "/orders").key("k");
        tokio::spawn(call.lab("delay=300").send())
    });
    let mut fresh = 0;
    for answer in join_all(calls).await {
        let answer: Answer = answer.expect("no panic");
        match answer.status.as_u16() {
            201 if answer.replayed() => {}
            201 => fresh += 1,
            409 => assert_eq!(answer.code(), "in-progress"),
            _ => panic!("{answer:?}"),
        }
    }
    assert_eq!(fresh, 1);
    let ran = join_all(labs.iter().map(|lab| effects(lab, "POST /orders"))).await;
    assert_eq!(ran.iter().sum::<u64>(), 1);
}

async fn an_announcement_is_sent_once_by_two_processes(on: Engine) {
    const PATH: &str = "/classrooms/7/announcement";
    let place = on.place();
    let args = &["--on-busy", "wait:10s"];
    let labs = [place.lab(args), place.lab(args)];
    let calls = labs.iter().map(|lab| {
        let call = post(lab.address(), PATH).body(format!("by {}", lab.pid()));
        tokio::spawn(call.lab("delay=200").send())
    });
    let answers = join_all(calls).await;
    let answers: Vec<Answer> = answers.into_iter().map(|a| a.expect("no panic")).collect();
    assert!(
        answers.iter().all(|answer| answer.status == 201),
        "{answers:?}"
    );
    assert_eq!(answers.iter().filter(|answer| answer.replayed()).count(), 1);
    assert_eq!(answers[0].body, answers[1].body);
    let of = format!("POST {PATH}");
    let ran = join_all(labs.iter().map(|lab| effects(lab, &of))).await;
    assert_eq!(ran.iter().sum::<u64>(), 1);
}

/// Kills a lab in the middle of a request that it has taken.
async fn kill_in_mid_request(mut lab: Lab, request: Call, of: &str) {
    let before = effects(&lab, of).await;
    let request = tokio::spawn(request.lab("hang").open());
    until("it works", || effects(&lab, of), |n| *n > before).await;
    lab.signal("KILL");
    assert!(lab.wait(Duration::from_secs(10)).is_some());
    request.abort();
}

async fn a_killed_owner_is_taken_over_by_the_other_process(on: Engine) {
    let place = on.place();
    let args = &["--lease", place.lease()];
    let (a, b) = (place.lab(args), place.lab(args));
    let hang = put(&a, "/accounts/7");
    kill_in_mid_request(a, hang, "PUT /accounts/7").await;
    let held = get(b.address(), "/claims").send().await.json();
    let held = held.as_array().expect("a list").iter();
    let tokens: Vec<u64> = held.filter_map(|claim| claim["token"].as_u64()).collect();
    assert_eq!(put(&b, "/accounts/7").send().await.code(), "leased");
    let ask = || put(&b, "/accounts/7").send();
    let after = until("it is taken over", ask, |answer| answer.status == 200).await;
    let before = number(&after, "took_over");
    assert!(tokens.contains(&before), "{before} was held: {tokens:?}");
    assert!(number(&after, "token") > before);
}

async fn a_killed_run_is_run_again_by_the_other_process(on: Engine) {
    let place = on.place();
    let args = &["--lease", place.lease()];
    let (a, b) = (place.lab(args), place.lab(args));
    let hang = post(a.address(), "/orders").key("k");
    kill_in_mid_request(a, hang, "POST /orders").await;
    let ask = || post(b.address(), "/orders").key("k").send();
    let after = until("it runs again", ask, |answer| answer.status == 201).await;
    assert!(!after.replayed());
    assert!(after.json()["took_over"].is_u64(), "{after:?}");
    assert!(
        post(b.address(), "/orders")
            .key("k")
            .send()
            .await
            .replayed()
    );
    assert_eq!(effects(&b, "POST /orders").await, 1);
}

async fn the_ledger_is_shared(on: Engine) {
    let place = on.place();
    let labs = [place.lab(&[]), place.lab(&[])];
    let mut written = Vec::new();
    for lab in labs.iter().cycle().take(4) {
        let answer = put(lab, "/accounts/7").send().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        written.push((number(&answer, "token"), lab.pid()));
    }
    assert!(written.is_sorted_by(|a, b| a.0 < b.0), "{written:?}");
    let old = format!("7;t={};o={}", written[0].0, "a".repeat(32));
    let zombie = put(&labs[1], "/ledger/7").header("fencing-token", &old);
    assert_eq!(zombie.send().await.code(), "token-stale");
    let seen = ledger(&labs[0], "7").await;
    assert_eq!(seen, ledger(&labs[1], "7").await);
    let admitted = seen["admitted"].as_array().expect("a list").iter();
    let admitted: Vec<_> = admitted
        .map(|entry| (entry["token"].as_u64(), entry["pid"].as_u64()))
        .collect();
    let expected: Vec<_> = written
        .iter()
        .map(|(token, pid)| (Some(*token), Some(u64::from(*pid))))
        .collect();
    assert_eq!(admitted, expected);
    assert_eq!(seen["high_water"], written[3].0);
    assert_eq!(seen["refused"], 1);

    // Writers of both at once: what is let in never goes back.
    let calls = (1..=40).map(|n| {
        let line = format!("8;t={n};o={}", format!("{n:x}").repeat(32)[..32].to_owned());
        let call = put(&labs[n % 2], "/ledger/8").header("fencing-token", line);
        tokio::spawn(call.send())
    });
    let mut let_in = Vec::new();
    for answer in join_all(calls).await {
        let answer = answer.expect("no panic");
        match answer.status.as_u16() {
            200 => let_in.push(number(&answer, "high_water")),
            _ => assert_eq!(answer.code(), "token-stale", "{answer:?}"),
        }
    }
    let seen = ledger(&labs[0], "8").await;
    let admitted = seen["admitted"].as_array().expect("a list").iter();
    let tokens: Vec<u64> = admitted
        .filter_map(|entry| entry["token"].as_u64())
        .collect();
    assert!(tokens.is_sorted(), "{tokens:?}");
    // Also a write that a newer one cut off on its way is answered for what became of it.
    let_in.sort_unstable();
    assert_eq!(let_in, tokens);
    assert_eq!(seen["refused"], 40 - let_in.len());
}

async fn a_released_account_is_free_for_the_other_process(on: Engine) {
    let place = on.place();
    let labs = [place.lab(&[]), place.lab(&[])];
    for lab in labs.iter().cycle().take(20) {
        let answer = put(lab, "/accounts/7").send().await;
        assert_eq!(
            answer.status, 200,
            "released before the last byte: {answer:?}"
        );
    }
    let long = tokio::spawn(put(&labs[0], "/accounts/7").lab("delay=5000").send());
    until(
        "it works",
        || effects(&labs[0], "PUT /accounts/7"),
        |n| *n == 11,
    )
    .await;
    assert_eq!(put(&labs[1], "/accounts/7").send().await.code(), "leased");
    let both = put(&labs[1], "/accounts/8?also=7").send().await;
    assert_eq!(both.code(), "leased");
    assert_eq!(long.await.expect("no panic").status, 200);
}

async fn labs_of_two_namespaces_do_not_meet(on: Engine) {
    let (here, there) = (on.place(), on.place());
    let (a, b) = (here.lab(&[]), there.lab(&[]));
    for lab in [&a, &b] {
        let order = post(lab.address(), "/orders").key("k").send().await;
        assert_eq!((order.status.as_u16(), order.replayed()), (201, false));
        assert_eq!(put(lab, "/accounts/7").send().await.status, 200);
        let admitted = ledger(lab, "7").await["admitted"].as_array().map(Vec::len);
        assert_eq!(admitted, Some(1));
    }
}

async fn operators_of_both_see_all_claims(on: Engine) {
    let place = on.place();
    let (a, b) = (place.lab(&[]), place.lab(&[]));
    assert_eq!(
        post(a.address(), "/orders").key("k").send().await.status,
        201
    );
    // What is before the store in one process is not before operators.
    assert_eq!(
        post(b.address(), "/faults?store=down").send().await.status,
        204
    );
    let claims = get(b.address(), "/claims").send().await.json();
    let done = claims.as_array().expect("a list").iter();
    assert!(
        done.filter(|claim| claim["state"] == "done").count() >= 1,
        "{claims}"
    );
    let here = post(b.address(), "/orders").key("k").send().await;
    assert_eq!(here.code(), "store-unavailable");
    assert!(
        post(a.address(), "/orders")
            .key("k")
            .send()
            .await
            .replayed()
    );
}

async fn a_store_that_stands_still_is_unavailable_and_comes_back(on: Engine) {
    let server = Own::start(on);
    let place = server.place();
    let lab = place.lab(&[]);
    assert_eq!(
        post(lab.address(), "/orders")
            .key("old")
            .send()
            .await
            .status,
        201
    );
    assert_eq!(put(&lab, "/accounts/7").send().await.status, 200);
    server.stop();
    let begun = Instant::now();
    let calls = [
        post(lab.address(), "/orders").key("old"),
        post(lab.address(), "/orders").key("new"),
        put(&lab, "/accounts/7"),
    ];
    for answer in join_all(calls.map(Call::send)).await {
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (503, "store-unavailable")
        );
    }
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(effects(&lab, "POST /orders").await, 1, "nothing ran");
    server.go_on();
    let ask = || post(lab.address(), "/orders").key("old").send();
    until("it is back", ask, Answer::replayed).await;
    let ask = || put(&lab, "/accounts/7").send();
    until("accounts are back", ask, |answer| answer.status == 200).await;
    assert_eq!(
        ledger(&lab, "7").await["admitted"].as_array().map(Vec::len),
        Some(2)
    );
}
