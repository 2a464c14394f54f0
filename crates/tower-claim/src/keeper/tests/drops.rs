//! Every future of the keeper, dropped at each of its awaits.

use super::*;
use crate::store::Value;

/// Drops `work` at each await, and asks afterwards whether the key is free at once.
async fn at_every_await<F, W>(mut work: F)
where
    F: FnMut(Scripted, Keeper) -> W,
    W: Future<Output = ()>,
{
    let mut n = 1;
    loop {
        let store = Scripted::new();
        for op in [Op::Claim, Op::Renew, Op::Mark, Op::Finish, Op::Release] {
            store.always(op, Act::Slow(LEASE / 40));
        }
        let keeper = keeper(&store);
        let done = until_await(n, work(store.clone(), keeper.clone())).await;
        let dropped = tokio::time::Instant::now();
        while store.is_held(key("a")) || store.is_held(key("b")) {
            assert!(dropped.elapsed() < LEASE / 4, "await {n}: still held");
            tokio::time::sleep(MS).await;
        }
        settled(&keeper).await;
        let debug = format!("{keeper:?}");
        assert!(debug.contains("holds: 0, jobs: 0"), "await {n}: {debug}");
        let nonces: Vec<_> = store.log().iter().map(|sent| sent.nonce).collect();
        tokio::time::sleep(LEASE * 2).await;
        assert_eq!(store.log().len(), nonces.len(), "await {n}: a late call");
        assert!(!store.is_held(key("a")), "await {n}: held again");
        if done.is_some() {
            assert!(n > 2, "this future has awaits");
            return;
        }
        n += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_dropped_at_any_await_leaves_the_key_free() {
    at_every_await(|_, keeper| async move {
        drop(claim(&keeper, "a").await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_claim_dropped_at_any_await_leaves_the_key_free() {
    at_every_await(|store, keeper| async move {
        store.next(Op::Claim, [Act::LoseReply]);
        drop(claim(&keeper, "a").await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_given_back_on_the_way_leaves_the_key_free() {
    at_every_await(|store, keeper| async move {
        store.next(Op::Claim, [Act::Suspend(LEASE * 2)]);
        drop(claim(&keeper, "a").await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_many_dropped_at_any_await_leaves_all_keys_free() {
    at_every_await(|_, keeper| async move {
        let keys = [key("a"), key("b")];
        drop(
            keeper
                .claim_many(&keys, &terms(), Token::ZERO)
                .await
                .unwrap(),
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_at_any_await_leaves_the_key_free() {
    at_every_await(|_, keeper| async move {
        let claim = claim(&keeper, "a").await;
        // So that a beat is under way when the release begins.
        let lost = claim.lost();
        let _ = tokio::time::timeout(LEASE * 38 / 100, lost).await;
        claim.release().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_mark_or_a_heal_dropped_at_any_await_leaves_the_key_free() {
    at_every_await(|_, keeper| async move {
        claim(&keeper, "a")
            .await
            .point_of_no_return()
            .await
            .unwrap();
    })
    .await;
    at_every_await(|_, keeper| async move {
        let claim = claim(&keeper, "a").await;
        drop(keeper.heal(claim, Token::ZERO).await.unwrap());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_finish_dropped_at_any_await_is_seen_through() {
    let mut n = 1;
    loop {
        let store = Scripted::new();
        store.always(Op::Finish, Act::Slow(LEASE / 40));
        store.next(Op::Finish, [Act::Unavailable, Act::LoseReply]);
        let keeper = keeper(&store);
        let held = claim(&keeper, "a").await;
        let done = until_await(n, held.finish(Value::Tombstone, LEASE * 10)).await;
        drop(held);
        settled(&keeper).await;
        assert_eq!(store.value(key("a")), Some(Value::Tombstone), "await {n}");
        assert!(store.sent(Op::Release).is_empty(), "await {n}");
        if done.is_some() {
            assert!(n > 2);
            return;
        }
        n += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_finish_never_polled_has_not_happened() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let held = claim(&keeper, "a").await;
    drop(held.finish(Value::Tombstone, LEASE));
    assert_eq!(held.check(), Ok(()));
    drop(held.lost());
    drop(held.revoke_requested());
    drop(keeper.drain(LEASE));
    assert_eq!(held.check(), Ok(()));
}
