//! Labs that are killed, paused and cut off in mid-work, two or three over one store.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use system_tests::client::{Answer, Call, call, get, post, until};
use system_tests::programs::Lab;

use super::engines::{Engine, on_each_shared_engine};
use super::{effects, number};

on_each_shared_engine!(
    an_owner_paused_for_three_leases_wakes_to_refusals,
    two_hundred_at_once_over_three_processes_run_once_a_key,
    a_kill_in_mid_answer_keeps_nothing_and_one_behind_it_keeps_all,
    lost_and_doubled_replies_run_nothing_twice,
    an_outcome_ends_everywhere_with_its_retention,
    every_byte_of_the_largest_body_survives,
);

/// Orders of all labs.
async fn orders(labs: &[&Lab]) -> u64 {
    let ran = join_all(labs.iter().map(|lab| effects(lab, "POST /orders"))).await;
    ran.iter().sum()
}

fn order(lab: &Lab, key: &str) -> Call {
    post(lab.address(), "/orders").key(key)
}

fn account(lab: &Lab, id: &str) -> Call {
    call(lab.address(), Method::PUT, format!("/accounts/{id}"))
}

async fn an_owner_paused_for_three_leases_wakes_to_refusals(on: Engine) {
    let place = on.place();
    let args = &["--lease", place.lease()];
    let (zombie, other) = (place.lab(args), place.lab(args));
    // One that can be cancelled, one that cannot: it holds its thread.
    let spared = tokio::spawn(account(&zombie, "1").lab("delay=8000").send());
    let stubborn = tokio::spawn(account(&zombie, "2").lab("block=8000").send());
    let half = tokio::spawn(order(&zombie, "k").lab("delay=8000").send());
    for of in ["PUT /accounts/1", "PUT /accounts/2", "POST /orders"] {
        until("it works", || effects(&zombie, of), |n| *n == 1).await;
    }
    zombie.signal("STOP");
    for _ in 0..3 {
        for id in ["1", "2"] {
            let ask = || account(&other, id).send();
            until("it is taken over", ask, |answer| answer.status == 200).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let ask = || order(&other, "k").send();
    let taken = until("the order runs", ask, |answer| answer.status == 201).await;
    zombie.signal("CONT");

    for late in [spared, stubborn] {
        let late = late.await.expect("no panic");
        let code = late.code();
        assert!(
            ["lease-lost", "token-stale"].contains(&code.as_str()),
            "{late:?}"
        );
    }
    let late = half.await.expect("no panic");
    assert!(late.replayed(), "it answers as a repeat would: {late:?}");
    assert_eq!(late.body, taken.body);
    for id in ["1", "2"] {
        let seen = get(other.address(), format!("/ledger/{id}")).send().await;
        let seen = seen.json();
        let admitted = seen["admitted"].as_array().expect("a list");
        assert_eq!(admitted.len(), 3, "{seen}");
        assert!(
            admitted.iter().all(|entry| entry["pid"] == other.pid()),
            "{seen}"
        );
    }
    let again = account(&zombie, "2").send().await;
    assert_eq!(again.status, 200, "it is well again: {again:?}");
}

async fn two_hundred_at_once_over_three_processes_run_once_a_key(on: Engine) {
    let place = on.place();
    let labs = [(); 3].map(|()| place.lab(&["--on-busy", "wait:20s"]));
    let calls = (0..200).map(|n| {
        let call = order(&labs[n % 3], &format!("k{}", n % 20)).lab("delay=50");
        tokio::spawn(async move { (n % 20, call.send().await) })
    });
    let mut firsts = HashMap::new();
    let mut bodies = HashMap::new();
    for answer in join_all(calls).await {
        let (key, answer): (usize, Answer) = answer.expect("no panic");
        assert_eq!(answer.status, 201, "{answer:?}");
        *firsts.entry(key).or_insert(0) += u32::from(!answer.replayed());
        let first = bodies.entry(key).or_insert(answer.body.clone());
        assert_eq!(*first, answer.body);
    }
    assert!(firsts.values().all(|firsts| *firsts == 1), "{firsts:?}");
    assert_eq!(orders(&labs.each_ref()).await, 20);
}

async fn a_kill_in_mid_answer_keeps_nothing_and_one_behind_it_keeps_all(on: Engine) {
    let place = on.place();
    let args = &["--lease", place.lease()];
    let (mut a, b) = (place.lab(args), place.lab(args));
    let whole = order(&a, "whole").lab("size=5000").send().await;
    assert!(whole.complete);
    let streaming = order(&a, "cut").lab("size=4000&chunks=4&chunk_delay=30000&nolen");
    let head = streaming.open().await;
    assert_eq!(head.status(), 201, "its head is out, its body is not");
    a.signal("KILL");
    assert!(a.wait(Duration::from_secs(10)).is_some());

    let again = order(&b, "whole").send().await;
    assert!(again.replayed());
    assert_eq!(again.body, whole.body);
    assert_eq!(order(&b, "cut").send().await.code(), "in-progress");
    let ask = || order(&b, "cut").send();
    let after = until("it runs again", ask, |answer| answer.status == 201).await;
    assert!(!after.replayed());
    assert_eq!(orders(&[&b]).await, 1);
}

async fn lost_and_doubled_replies_run_nothing_twice(on: Engine) {
    let place = on.place();
    let (a, b) = (place.lab(&[]), place.lab(&[]));
    for (n, fault) in ["lose-reply:1", "lose-reply:2", "lose-reply:3", "repeat:8"]
        .into_iter()
        .enumerate()
    {
        let set = post(a.address(), format!("/faults?store={fault}"));
        assert_eq!(set.send().await.status, 204);
        let key = format!("k{n}");
        let here = order(&a, &key).send().await;
        let ok = here.status == 201 || here.status == 503;
        assert!(ok, "{fault}: {here:?}");
        let write = account(&a, &key).send().await;
        let ok = write.status == 200 || write.status == 503;
        assert!(ok, "{fault}: {write:?}");
        let set = post(a.address(), "/faults?store=ok");
        assert_eq!(set.send().await.status, 204);
        let ask = || order(&b, &key).send();
        let there = until("it is known there", ask, |answer| answer.status == 201).await;
        if here.status == 201 {
            assert!(there.replayed(), "{fault}: {here:?} {there:?}");
            assert_eq!(there.body, here.body);
        }
        assert_eq!(orders(&[&a, &b]).await, n as u64 + 1, "{fault}");
        let ask = || account(&b, &key).send();
        until("it is released", ask, |answer| answer.status == 200).await;
    }
}

async fn an_outcome_ends_everywhere_with_its_retention(on: Engine) {
    let place = on.place();
    let args = &["--retention", place.lease(), "--lease", "30s"];
    let (a, b) = (place.lab(args), place.lab(args));
    assert_eq!(order(&a, "k").send().await.status, 201);
    let ask = || order(&b, "k").send();
    let after = until("it ends", ask, |answer| !answer.replayed()).await;
    assert_eq!(after.status, 201);
    assert_eq!(number(&after, "n"), 1);
    assert!(order(&a, "k").send().await.replayed());
    assert_eq!(orders(&[&a, &b]).await, 2);
}

async fn every_byte_of_the_largest_body_survives(on: Engine) {
    let place = on.place();
    let (a, b) = (place.lab(&[]), place.lab(&[]));
    let bytes: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 257) as u8).collect();
    let sent = |lab: &Lab| order(lab, "k").body(bytes.clone());
    let first = sent(&a).lab("size=1048576").send().await;
    assert_eq!((first.status.as_u16(), first.body.len()), (201, 1 << 20));
    let again = sent(&b).send().await;
    assert!(again.replayed(), "{:?}", again.status);
    assert!(again.body == first.body, "other bytes");
    assert_eq!(again.headers["x-name"].as_bytes(), b"caf\xE9");
    let mut other = bytes.clone();
    other[1 << 19] ^= 1;
    let other = order(&b, "k").body(other).send().await;
    assert_eq!(other.code(), "key-reused");
    // An answer of no bytes is an answer.
    let empty = order(&a, "empty").lab("size=0").send().await;
    let again = order(&b, "empty").send().await;
    assert_eq!((empty.body.len(), again.body.len()), (0, 0));
    assert!(again.replayed());
}
