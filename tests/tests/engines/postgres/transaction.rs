//! Within the user's transaction.

use std::time::Instant;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, IsolationLevel, Transaction};
use tower_claim::store::{Admission, Claimed, LostReason, Renewed};
use tower_claim::{ClaimStore, FenceStore, StoreError, Token};
use tower_claim_postgres::{PostgresStore, TransactionError};

use super::scene::{
    Ask, SECOND, beat, client, granted, hold, kept, key, nonce, rows, store, until,
};
use super::server;

/// A store, its user's session, and a table of the user.
async fn shop() -> (PostgresStore, Client, String) {
    let (store, schema) = store().await;
    let client = client(&server().url()).await;
    let orders = format!("{schema}.orders");
    let table = format!("create table {orders} (id int)");
    client.batch_execute(&table).await.expect("a table");
    (store, client, orders)
}

#[tokio::test]
async fn an_owner_that_was_superseded_cannot_commit() {
    let (store, mut client, orders) = shop().await;
    let zombie = hold(&store, key(), SECOND / 20).await;
    let insert = format!("insert into {orders} values (1)");
    let transaction = client.transaction().await.expect("it begins");
    transaction.execute(&insert, &[]).await.expect("a row");
    tokio::time::sleep(SECOND / 10).await;
    let next = hold(&store, zombie.key, 60 * SECOND).await;

    let answer = store
        .finish_in(&transaction, zombie, kept("late"), 60 * SECOND)
        .await;
    assert!(matches!(answer, Err(TransactionError::Lost)), "{answer:?}");
    // Who does not heed the error: the server answers by a rollback.
    let _ = transaction.commit().await;
    assert_eq!(rows(&client, &orders).await, 0);

    let transaction = client.transaction().await.expect("it begins");
    transaction.execute(&insert, &[]).await.expect("a row");
    let answer = store
        .finish_in(&transaction, next, kept("done"), 60 * SECOND)
        .await;
    answer.expect("it is finished");
    let outside = store.peek(next.key).await.expect("an answer");
    assert_eq!(
        outside.expect("a record").state.as_str(),
        "held",
        "not before the commit"
    );
    transaction.commit().await.expect("it commits");
    assert_eq!(rows(&client, &orders).await, 1);
    let replay = Ask::new(&store, next.key, SECOND);
    let answer = store.claim(replay.request()).await.expect("an answer");
    assert!(matches!(answer, Claimed::Done(_)));
}

/// The client is gone at each point of "claim outside, finish inside": no row without a finish, no finish
/// without a row.
#[tokio::test]
async fn a_crash_at_any_point_leaves_row_and_result_or_neither() {
    for point in 0..4 {
        let (store, watcher, orders) = shop().await;
        let mut session = client(&server().url()).await;
        let owner = hold(&store, key(), SECOND / 2).await;
        let insert = format!("insert into {orders} values (1)");
        let transaction = session.transaction().await.expect("it begins");
        if point > 0 {
            transaction.execute(&insert, &[]).await.expect("a row");
        }
        if point > 1 {
            let answer = store
                .finish_in(&transaction, owner, kept("done"), 60 * SECOND)
                .await;
            answer.expect("it is finished");
        }
        if point > 2 {
            transaction.commit().await.expect("it commits");
        } else {
            let pid: i32 = transaction
                .query_one("select pg_backend_pid()", &[])
                .await
                .expect("a pid")
                .get(0);
            // The session ends as if its client was killed.
            watcher
                .execute("select pg_terminate_backend($1, 5000)", &[&pid])
                .await
                .expect("it ends");
            assert!(transaction.commit().await.is_err());
        }
        let done = point > 2;
        assert_eq!(rows(&watcher, &orders).await, i64::from(done));
        tokio::time::sleep(SECOND * 6 / 10).await;
        let next = Ask::new(&store, owner.key, SECOND);
        let answer = store.claim(next.request()).await.expect("an answer");
        assert_eq!(matches!(answer, Claimed::Done(_)), done, "point {point}");
        assert_eq!(matches!(answer, Claimed::Granted(_)), !done);
    }
}

#[tokio::test]
async fn a_duplicate_in_a_transaction_never_waits_for_the_first() {
    let (store, mut first, _) = shop().await;
    let mut second = client(&server().url()).await;
    for fresh in [true, false] {
        let key = key();
        if !fresh {
            hold(&store, key, SECOND / 20).await;
            tokio::time::sleep(SECOND / 10).await;
        }
        let winner = Ask::new(&store, key, 60 * SECOND);
        let transaction = first.transaction().await.expect("it begins");
        granted(
            store
                .claim_in(&transaction, winner.request())
                .await
                .expect("an answer"),
        );

        let loser = Ask::new(&store, key, 60 * SECOND);
        let other = second.transaction().await.expect("it begins");
        // Who waited would wait in each of them: of a busy machine the fastest counts.
        let mut fastest = 60 * SECOND;
        for _ in 0..10 {
            let sent = Instant::now();
            let answer = store.claim_in(&other, loser.request()).await;
            let Ok(Claimed::Busy(busy)) = answer else {
                panic!("a locked row is busy: {answer:?}");
            };
            assert_eq!(busy.token == Token::ZERO, fresh);
            fastest = fastest.min(sent.elapsed());
        }
        assert!(fastest < SECOND / 2, "it waited: {fastest:?}");
        // The transaction lives, with its own bound on locks.
        let bound = other.query_one("show lock_timeout", &[]).await;
        assert_eq!(bound.expect("it lives").get::<_, String>(0), "0");
        other.commit().await.expect("it commits");

        transaction.rollback().await.expect("it ends");
        let answer = store.claim(loser.request()).await.expect("an answer");
        let grant = granted(answer);
        assert_eq!(grant.took_over.is_some(), !fresh, "nothing is left of it");
    }
}

#[tokio::test]
async fn no_bound_on_locks_leaks_into_the_transaction() {
    let (store, mut client, _) = shop().await;
    let transaction = client.transaction().await.expect("it begins");
    transaction
        .batch_execute("set local lock_timeout = '7s'")
        .await
        .expect("a bound of the user's");
    let ask = Ask::new(&store, key(), 60 * SECOND);
    let token = granted(
        store
            .claim_in(&transaction, ask.request())
            .await
            .expect("an answer"),
    )
    .token;
    let owner = ask.owner(token);
    assert!(store.still_held_in(&transaction, owner).await.is_ok());
    assert!(
        store
            .finish_in(&transaction, owner, kept(""), 60 * SECOND)
            .await
            .is_ok()
    );
    let admitted = store
        .fence_in(&transaction, "seat", token, owner.nonce)
        .await;
    admitted.expect("it is admitted");
    let bound = transaction.query_one("show lock_timeout", &[]).await;
    assert_eq!(bound.expect("an answer").get::<_, String>(0), "7s");
}

#[tokio::test]
async fn while_still_held_in_is_open_nobody_takes_over() {
    let (store, mut client, _) = shop().await;
    let owner = hold(&store, key(), 3 * SECOND).await;
    let transaction = client.transaction().await.expect("it begins");
    let held = store.still_held_in(&transaction, owner).await;
    held.expect("it is held");
    let beats = store.renew(&[beat(owner)]).await.expect("an answer");
    assert_eq!(beats, [Renewed::Unsure]);
    tokio::time::sleep(SECOND * 31 / 10).await;
    let taker = Ask::new(&store, owner.key, 60 * SECOND);
    let (answer, ()) = tokio::join!(store.claim(taker.request()), async {
        tokio::time::sleep(SECOND / 4).await;
        transaction.commit().await.expect("it commits");
    });
    granted(answer.expect("it waited for the commit"));
    let transaction = client.transaction().await.expect("it begins");
    let held = store.still_held_in(&transaction, owner).await;
    let lost = TransactionError::NotHeld(LostReason::Superseded);
    assert_eq!(held.map_err(|e| e.to_string()), Err(lost.to_string()));
    fails(&transaction).await;
}

/// No statement is taken any more, and no commit.
async fn fails(transaction: &Transaction<'_>) {
    let next = transaction.query_one("select 1", &[]).await;
    let code = next.expect_err("it failed").code().cloned();
    assert_eq!(code, Some(SqlState::IN_FAILED_SQL_TRANSACTION));
}

/// The server ends a transaction that stands idle: neither row nor result, and the key is free after its lease.
#[tokio::test]
async fn a_transaction_that_the_server_ends_leaves_neither_row_nor_result() {
    let (store, watcher, orders) = shop().await;
    let mut client = client(&server().url()).await;
    let owner = hold(&store, key(), SECOND).await;
    let transaction = client.transaction().await.expect("it begins");
    let session = transaction.query_one("select pg_backend_pid()", &[]).await;
    let session: i32 = session.expect("a pid").get(0);
    let insert = format!("insert into {orders} values (1)");
    transaction.execute(&insert, &[]).await.expect("a row");
    let done = store.finish_in(&transaction, owner, kept("done"), 60 * SECOND);
    done.await.expect("it is finished");
    transaction
        .batch_execute("set local idle_in_transaction_session_timeout = '100ms'")
        .await
        .expect("a bound");
    let sessions = "select count(*) from pg_stat_activity where pid = $1";
    until("the server ends the session", async || {
        let row = watcher.query_one(sessions, &[&session]).await;
        row.expect("a count").get::<_, i64>(0) == 0
    })
    .await;
    assert!(transaction.commit().await.is_err(), "the session is gone");
    assert_eq!(rows(&watcher, &orders).await, 0);
    until("the key is claimable", async || {
        let next = Ask::new(&store, owner.key, SECOND);
        let answer = store.claim(next.request()).await.expect("an answer");
        assert!(!matches!(answer, Claimed::Done(_)), "{answer:?}");
        matches!(answer, Claimed::Granted(_))
    })
    .await;
}

#[tokio::test]
async fn a_mark_in_a_transaction_goes_back_with_it_and_is_not_overtaken() {
    let (store, mut old, _) = shop().await;
    let token = |n| Token::new(n).expect("a token");
    let (first, second) = (nonce(), nonce());
    // The second resource knows the token already: nothing is to be changed, and it must not be overtaken all
    // the same.
    let admitted = store.admit("known", token(5), first).await;
    assert_eq!(admitted.expect("an answer"), Admission::Admitted);
    for resource in ["new", "known"] {
        let transaction = old.transaction().await.expect("it begins");
        let answer = store
            .fence_in(&transaction, resource, token(5), first)
            .await;
        answer.expect("it is admitted");
        let sent = Instant::now();
        let newer = async {
            let newer = store.admit(resource, token(6), second).await;
            (newer.expect("an answer"), sent.elapsed())
        };
        let ((newer, waited), ()) = tokio::join!(newer, async {
            tokio::time::sleep(SECOND / 4).await;
            transaction.rollback().await.expect("it ends");
        });
        assert_eq!(newer, Admission::Admitted);
        assert!(waited >= SECOND / 4, "{resource}: it overtook");
        let transaction = old.transaction().await.expect("it begins");
        let answer = store
            .fence_in(&transaction, resource, token(5), first)
            .await;
        assert!(
            matches!(&answer, Err(TransactionError::Stale { high }) if *high == token(6)),
            "{answer:?}"
        );
        fails(&transaction).await;
    }
}

#[tokio::test]
async fn at_stricter_isolation_a_conflict_is_to_be_tried_again() {
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let (store, mut client, _) = shop().await;
        let owner = hold(&store, key(), 60 * SECOND).await;
        let transaction = client
            .build_transaction()
            .isolation_level(level)
            .start()
            .await
            .expect("it begins");
        // The snapshot is taken; then somebody else changes the row, and makes another.
        transaction.query_one("select 1", &[]).await.expect("a row");
        assert!(store.renew(&[beat(owner)]).await.is_ok());
        let answer = store
            .finish_in(&transaction, owner, kept("done"), 60 * SECOND)
            .await;
        assert!(
            matches!(&answer, Err(error @ TransactionError::Store(StoreError::Unavailable(_))) if error.is_retryable()),
            "{level:?}: {answer:?}"
        );
        transaction.rollback().await.expect("it ends");

        let fresh = key();
        let transaction = client
            .build_transaction()
            .isolation_level(level)
            .start()
            .await
            .expect("it begins");
        transaction.query_one("select 1", &[]).await.expect("a row");
        hold(&store, fresh, 60 * SECOND).await;
        let ask = Ask::new(&store, fresh, SECOND);
        let answer = store.claim_in(&transaction, ask.request()).await;
        assert!(
            matches!(&answer, Err(error @ TransactionError::Store(StoreError::Unavailable(_))) if error.is_retryable()),
            "{level:?}: {answer:?}"
        );
    }
}
