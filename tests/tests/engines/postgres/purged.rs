//! What an operator has purged is gone from the row.

use std::time::Duration;

use tokio_postgres::Client;
use tower_claim::store::{ClaimRequest, Finish, FinishRequest, Owner, Purged, State};
use tower_claim::{ClaimAdmin, ClaimStore, Fingerprint};
use tower_claim_postgres::{PostgresStore, TransactionError};

use super::scene::{
    Ask, SECOND, client, finish, granted, hold, kept, key, rows, store, tables, until,
};
use super::server;

/// A key with a result that tells of somebody.
async fn done(store: &PostgresStore, keep: Duration) -> Owner {
    let mut ask = Ask::new(store, key(), 20 * SECOND);
    ask.settings.label = "payments".into();
    let request = ClaimRequest {
        fingerprint: Some(Fingerprint::from_bytes([7; 32])),
        ..ask.request()
    };
    let owner = ask.owner(granted(store.claim(request).await.expect("an answer")).token);
    let request = FinishRequest {
        owner,
        value: kept("Ada Lovelace"),
        keep,
    };
    assert_eq!(store.finish(request).await.ok(), Some(Finish::Finished));
    owner
}

/// The row as text.
async fn row(client: &Client, schema: &str, owner: Owner) -> String {
    let row = format!(
        "select coalesce(convert_from(value, 'UTF8'), '-') || ' ' || coalesce(fingerprint::text, '-') || ' ' || \
         label || ' ' || state || ' ' || encode(nonce, 'hex') from {schema}.claim where key = $1"
    );
    let key = owner.key.as_bytes().to_vec();
    client.query_one(&row, &[&key]).await.expect("a row").get(0)
}

#[tokio::test]
async fn a_purge_leaves_nothing_of_the_result_in_the_row() {
    let (store, schema) = store().await;
    let client = client(&server().url()).await;
    let owner = done(&store, 60 * SECOND).await;
    let before = row(&client, &schema, owner).await;
    assert!(
        before.contains("Ada") && before.contains("payments"),
        "{before}"
    );
    let purged = store.purge(owner.key, owner.token).await;
    assert!(matches!(purged, Ok(Purged::Purged { .. })), "{purged:?}");
    // And the nonce that a late copy of the claim meets.
    let free = format!("- -  free {}", owner.nonce);
    assert_eq!(row(&client, &schema, owner).await, free);
}

/// The row stays until no copy of the claim may arrive and a purge of ended records comes by.
#[tokio::test]
async fn a_purge_past_the_keep_leaves_nothing_of_the_result_in_the_row_either() {
    let (store, schema) = store().await;
    let client = client(&server().url()).await;
    let owner = done(&store, Duration::from_micros(1)).await;
    until("its keep has passed", async || {
        let view = store.peek(owner.key).await.expect("an answer");
        view.expect("a record").state == State::Free
    })
    .await;
    let before = row(&client, &schema, owner).await;
    assert!(before.contains("Ada"), "nobody has touched it: {before}");
    let purged = store.purge(owner.key, owner.token).await;
    assert_eq!(purged.ok(), Some(Purged::Absent));
    let free = format!("- -  free {}", owner.nonce);
    assert_eq!(row(&client, &schema, owner).await, free);
}

/// The user's transaction has finished and not committed: a purge waits for it, and judges what it left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_waits_for_a_finish_that_is_being_committed() {
    let (builder, schema) = tables().await;
    let url = format!("{}?application_name={schema}", server().url());
    let builder = builder.url(&url).call_timeout(60 * SECOND);
    let store = builder.connect().await.expect("it connects");
    let stranger = client(&server().url()).await;
    let waiting = "select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'";
    for commits in [true, false] {
        let owner = hold(&store, key(), 60 * SECOND).await;
        let mut session = client(&server().url()).await;
        let transaction = session.transaction().await.expect("it begins");
        let done = store.finish_in(&transaction, owner, kept("done"), 60 * SECOND);
        assert!(done.await.is_ok());
        let ends = async {
            until("the purge waits", async || {
                let row = stranger.query_one(waiting, &[&schema]).await;
                row.expect("a count").get::<_, i64>(0) == 1
            })
            .await;
            match commits {
                true => transaction.commit().await,
                false => transaction.rollback().await,
            }
        };
        let (purged, ended) = tokio::join!(store.purge(owner.key, owner.token), ends);
        ended.expect("it ends");
        let purged = purged.expect("an answer");
        let late = store
            .finish(finish(owner, "late"))
            .await
            .expect("an answer");
        if commits {
            assert!(matches!(purged, Purged::Purged { .. }), "{purged:?}");
            assert_eq!(late, Finish::Lost);
            hold(&store, owner.key, SECOND).await;
        } else {
            assert!(matches!(purged, Purged::Conflict { .. }), "{purged:?}");
            assert_eq!(late, Finish::Finished);
        }
    }
}

#[tokio::test]
async fn a_purged_owner_cannot_commit() {
    let (store, schema) = store().await;
    let owner = done(&store, 60 * SECOND).await;
    let purged = store.purge(owner.key, owner.token).await;
    assert!(matches!(purged, Ok(Purged::Purged { .. })), "{purged:?}");
    let mut session = client(&server().url()).await;
    let orders = format!("{schema}.orders");
    let table = format!("create table {orders} (id int)");
    session.batch_execute(&table).await.expect("a table");
    let transaction = session.transaction().await.expect("it begins");
    let insert = format!("insert into {orders} values (1)");
    transaction.execute(&insert, &[]).await.expect("a row");
    let late = store.finish_in(&transaction, owner, kept("late"), 60 * SECOND);
    let late = late.await;
    assert!(matches!(late, Err(TransactionError::Lost)), "{late:?}");
    // Who does not heed the error: the server answers by a rollback.
    let _ = transaction.commit().await;
    assert_eq!(rows(&session, &orders).await, 0);
    hold(&store, owner.key, SECOND).await;
}
