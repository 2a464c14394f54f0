//! What one tenant may have, where it has two processes to have it in: each counts for itself.

use tower_idempotency::IdempotencyBuilder;

use super::on_each_engine;
use super::scene::{Answer, Engine, Process, Shop, ask};

on_each_engine!(
    each_process_counts_for_itself_and_repeats_are_answered_by_all,
    a_process_that_starts_counts_from_zero,
    what_does_not_fit_is_a_tombstone_for_the_other_process,
);

fn three(builder: IdempotencyBuilder) -> IdempotencyBuilder {
    builder.max_records_per_tenant(3)
}

async fn order<E: Engine>(process: &Process<E>, key: &str) -> Answer {
    process.ask(&ask(key).tenant("acme")).await
}

#[track_caller]
fn over_quota(answer: &Answer) {
    answer.assert_refused(429, "quota-exceeded");
    assert!(answer.retry_after().is_some());
}

async fn each_process_counts_for_itself_and_repeats_are_answered_by_all<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let one = Process::with(&place, &shop, three).await;
    let other = Process::with(&place, &shop, three).await;
    let mut first = Vec::new();
    for n in 0..3 {
        first.push(order(&one, &format!("one-{n}")).await);
    }
    over_quota(&order(&one, "one-3").await);
    // The other knows nothing of these: the tenant has as many again there.
    assert_eq!(other.layer.tenant_usage(Some("acme")).records, 0);
    // What is there is replayed, and counts nothing.
    for (n, first) in first.iter().enumerate() {
        order(&other, &format!("one-{n}"))
            .await
            .assert_replay_of(first);
    }
    for n in 0..3 {
        order(&other, &format!("other-{n}")).await.assert_fresh(201);
    }
    over_quota(&order(&other, "other-3").await);
    assert_eq!(shop.effects(), 6, "twice the quota, in two processes");
    // At its limit each still answers what any of them has run.
    for n in 0..3 {
        assert!(order(&other, &format!("one-{n}")).await.is_replay());
        assert!(order(&one, &format!("other-{n}")).await.is_replay());
    }
    // Its neighbour is not concerned.
    one.ask(&ask("one-3").tenant("globex"))
        .await
        .assert_fresh(201);
    assert_eq!(shop.effects(), 7);
}

async fn a_process_that_starts_counts_from_zero<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    for round in 0..2 {
        let process = Process::with(&place, &shop, three).await;
        for n in 0..3 {
            order(&process, &format!("{round}-{n}"))
                .await
                .assert_fresh(201);
        }
        over_quota(&order(&process, &format!("{round}-3")).await);
    }
    assert_eq!(shop.effects(), 6);
}

async fn what_does_not_fit_is_a_tombstone_for_the_other_process<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let bytes = |builder: IdempotencyBuilder| builder.max_bytes_per_tenant(3000);
    let one = Process::with(&place, &shop, bytes).await;
    let other = Process::with(&place, &shop, bytes).await;
    let fits = ask("fits").tenant("acme").does("size=1000");
    let large = ask("large").tenant("acme").does("size=2500");
    let first = one.ask(&fits).await;
    assert_eq!(
        one.ask(&large).await.body.len(),
        2500,
        "whole, for the first"
    );
    for process in [&one, &other] {
        process.ask(&fits).await.assert_replay_of(&first);
        process
            .ask(&large)
            .await
            .assert_refused(409, "response-not-kept");
    }
    assert_eq!(shop.effects(), 2);
}
