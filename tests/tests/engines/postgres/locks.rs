//! Rows that others have locked, and crowds at one key.

use std::collections::HashSet;
use std::time::Instant;

use futures_util::future::join_all;
use tower_claim::store::{Claimed, LostReason, Renewed};
use tower_claim::{ClaimStore, StoreError};

use super::scene::{Ask, SECOND, beat, client, finish, granted, hold, key, store, tables};
use super::server;

/// A stranger locks one row of a batch for three leases.
async fn a_locked_row(lock: &str) {
    let (builder, schema) = tables().await;
    let hasty = builder.clone().call_timeout(SECOND / 2);
    let hasty = hasty.connect().await.expect("it connects");
    // What waits for the lock is refused after half of it.
    let builder = builder.call_timeout(60 * SECOND);
    let store = builder.connect().await.expect("it connects");
    let (lease, long) = (SECOND, 60 * SECOND);
    let (locked, neighbour) = (
        hold(&store, key(), lease).await,
        hold(&store, key(), long).await,
    );
    let stranger = client(&server().url()).await;
    let row = format!("select from {schema}.claim where key = $1 {lock}");
    stranger.batch_execute("begin").await.expect("it begins");
    let bytes = locked.key.as_bytes().as_slice();
    stranger.query(&row, &[&bytes]).await.expect("it locks");

    let begin = Instant::now();
    while begin.elapsed() < 3 * lease {
        let batch = [beat(locked), beat(neighbour)];
        let answers = store.renew(&batch).await.expect("a batch waits for nobody");
        assert_eq!(answers[0], Renewed::Unsure, "doubt, not loss");
        match answers[1] {
            Renewed::Renewed { rest, .. } => assert!(rest > long - long / 10 && rest <= long),
            ref other => panic!("the neighbour was harmed: {other:?}"),
        }
        tokio::time::sleep(lease / 3).await;
    }
    let late = hasty.finish(finish(locked, "late")).await;
    assert!(
        matches!(late, Err(StoreError::Unavailable(_))),
        "not applied: {late:?}"
    );
    let ask = Ask::new(&store, locked.key, long);
    let claimed = hasty.claim(ask.request()).await;
    assert!(
        matches!(claimed, Err(StoreError::Unavailable(_))),
        "a lapsed hold whose row is locked: {claimed:?}"
    );

    stranger.batch_execute("rollback").await.expect("it ends");
    let answers = store.renew(&[beat(locked)]).await.expect("an answer");
    assert_eq!(answers, [Renewed::Lost(LostReason::Lapsed)]);
    let grant = granted(store.claim(ask.request()).await.expect("an answer"));
    assert!(grant.lease > long - long / 10, "a full lease");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_locked_for_update_is_doubt_and_harms_no_neighbour() {
    a_locked_row("for update").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_locked_for_share_is_doubt_and_harms_no_neighbour() {
    a_locked_row("for share").await;
}

/// They only read, past any lock.
#[tokio::test]
async fn a_replay_and_a_busy_answer_wait_for_no_stranger() {
    let (builder, schema) = tables().await;
    // Who waited would be refused after half of it.
    let builder = builder.call_timeout(20 * SECOND);
    let store = builder.connect().await.expect("it connects");
    let (busy, done) = (
        hold(&store, key(), 60 * SECOND).await,
        hold(&store, key(), 60 * SECOND).await,
    );
    assert!(store.finish(finish(done, "done")).await.is_ok());
    let stranger = client(&server().url()).await;
    stranger.batch_execute("begin").await.expect("it begins");
    let rows = format!("select from {schema}.claim for update");
    let locked = stranger.query(&rows, &[]).await.expect("it locks");
    assert_eq!(locked.len(), 2);
    for _ in 0..3 {
        let ask = Ask::new(&store, busy.key, SECOND);
        let answer = store.claim(ask.request()).await;
        assert!(matches!(answer, Ok(Claimed::Busy(_))), "{answer:?}");
        let ask = Ask::new(&store, done.key, SECOND);
        let answer = store.claim(ask.request()).await;
        assert!(matches!(answer, Ok(Claimed::Done(_))), "{answer:?}");
    }
    stranger.batch_execute("rollback").await.expect("it ends");
}

/// What waits for a lock is judged by the time when it has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waited_for_a_lock_has_a_full_lease() {
    let (store, schema) = store().await;
    let first = Ask::new(&store, key(), SECOND / 10);
    granted(store.claim(first.request()).await.expect("an answer"));
    tokio::time::sleep(SECOND / 5).await;
    let stranger = client(&server().url()).await;
    stranger.batch_execute("begin").await.expect("it begins");
    let row = format!("select from {schema}.claim where key = $1 for update");
    let bytes = first.key.as_bytes().as_slice();
    stranger.query(&row, &[&bytes]).await.expect("it locks");

    let lease = 60 * SECOND;
    let next = Ask::new(&store, first.key, lease);
    let (answer, unlocked) = tokio::join!(store.claim(next.request()), async {
        tokio::time::sleep(SECOND / 2).await;
        let unlocked = Instant::now();
        stranger.batch_execute("rollback").await.expect("it ends");
        unlocked
    });
    let grant = granted(answer.expect("an answer"));
    let view = store.peek(first.key).await.expect("an answer");
    let left = view.expect("a record").expires_in;
    // Of two machines' clocks, which count alike.
    let since = unlocked.elapsed() + SECOND / 100;
    assert!(
        left + since >= lease && grant.lease == lease,
        "the wait was taken from the lease: {left:?} of {:?}, unlocked {since:?} ago",
        grant.lease
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_storm_at_one_free_key_one_is_granted_and_none_fails() {
    let (builder, _) = tables().await;
    let store = builder.pool_size(24).connect().await.expect("it connects");
    for _ in 0..40 {
        let key = key();
        let asks: Vec<_> = (0..24)
            .map(|_| Ask::new(&store, key, 60 * SECOND))
            .collect();
        let answers = join_all(asks.iter().map(|ask| store.claim(ask.request()))).await;
        let mut grants = 0;
        for answer in answers {
            match answer.expect("a loser is answered") {
                Claimed::Granted(_) => grants += 1,
                Claimed::Busy(busy) => assert!(busy.expires_in > 50 * SECOND),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(grants, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twelve_takers_one_wins_with_a_higher_token() {
    let (builder, _) = tables().await;
    let store = builder.pool_size(12).connect().await.expect("it connects");
    let mut last = hold(&store, key(), SECOND / 20).await;
    let mut tokens = HashSet::from([last.token]);
    for _ in 0..20 {
        tokio::time::sleep(SECOND / 15).await;
        let asks: Vec<_> = (0..12)
            .map(|_| Ask::new(&store, last.key, SECOND / 20))
            .collect();
        let answers = join_all(asks.iter().map(|ask| store.claim(ask.request()))).await;
        let won: Vec<_> = answers
            .into_iter()
            .zip(&asks)
            .filter_map(|(answer, ask)| match answer.expect("an answer") {
                Claimed::Granted(grant) => Some(ask.owner(grant.token)),
                Claimed::Busy(_) => None,
                other => panic!("{other:?}"),
            })
            .collect();
        // On a busy machine the winner may have lapsed before the last was answered.
        assert!(!won.is_empty());
        for owner in won {
            assert!(tokens.insert(owner.token), "a token was given twice");
            assert!(owner.token > last.token || tokens.len() > 2);
            last = if owner.token > last.token {
                owner
            } else {
                last
            };
        }
    }
}

/// A key that is released and claimed over and over: its row is never missing for long, nothing fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_goes_from_hand_to_hand_never_fails() {
    let (store, _) = store().await;
    let key = key();
    let hands = (0..8).map(|_| async {
        let mut grants = 0;
        while grants < 10 {
            let ask = Ask::new(&store, key, 10 * SECOND);
            match store.claim(ask.request()).await.expect("an answer") {
                Claimed::Granted(_) => {
                    grants += 1;
                    store.release(ask.release()).await.expect("an answer");
                }
                Claimed::Busy(_) => tokio::time::sleep(SECOND / 500).await,
                other => panic!("{other:?}"),
            }
        }
    });
    join_all(hands).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_one_never_locks_up() {
    let (builder, _) = tables().await;
    let store = builder.pool_size(1).connect().await.expect("it connects");
    let key = key();
    let leaked = hold(&store, key, SECOND / 2).await;
    // Many wait for the hold, and none keeps the connection meanwhile.
    let waiting = join_all((0..20).map(|_| store.watch(key, leaked.token)));
    let working = join_all((0..20).map(|_| async {
        let owner = hold(&store, super::scene::key(), SECOND * 10).await;
        store
            .finish(finish(owner, "done"))
            .await
            .expect("an answer")
    }));
    let (waited, _) = tokio::time::timeout(30 * SECOND, async { tokio::join!(waiting, working) })
        .await
        .expect("nobody waits for ever");
    assert!(waited.iter().all(Result::is_ok));
    // A handle that was leaked lapses.
    hold(&store, key, SECOND).await;
}
