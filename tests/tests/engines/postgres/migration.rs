//! The tables: made, known again, refused; and the rights to them.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use system_tests::servers::Postgres;
use tower_claim::store::Renewed;
use tower_claim::{ClaimAdmin, ClaimStore, FenceStore, StoreError, Token};
use tower_claim_postgres::{ConnectError, Names, PostgresStore};

use super::scene::{Ask, SECOND, beat, client, finish, granted, hold, key, tables};
use super::{fresh_schema, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_may_migrate_at_once_and_again() {
    let builder = PostgresStore::builder()
        .url(&server().url())
        .schema(&fresh_schema());
    for _ in 0..2 {
        let all = join_all((0..8).map(|_| builder.migrate())).await;
        assert!(all.iter().all(Result::is_ok), "{all:?}");
    }
    let store = builder.connect().await.expect("it connects");
    hold(&store, key(), SECOND).await;
}

#[tokio::test]
async fn two_stores_share_a_schema_by_their_prefix() {
    let schema = fresh_schema();
    let open = async |prefix: &str| {
        let builder = PostgresStore::builder().url(&server().url());
        let builder = builder.schema(&schema).table_prefix(prefix);
        builder.migrate().await.expect("it migrates");
        builder.connect().await.expect("it connects")
    };
    let (one, other) = (open("a_").await, open("b_").await);
    let key = key();
    hold(&one, key, SECOND * 60).await;
    hold(&other, key, SECOND * 60).await;
}

#[tokio::test]
async fn a_store_without_its_tables_says_what_to_run() {
    let builder = PostgresStore::builder()
        .url(&server().url())
        .schema(&fresh_schema());
    let error = builder.connect().await.expect_err("no tables");
    assert!(matches!(error, ConnectError::NotMigrated(_)));
    let text = error.to_string();
    assert!(
        text.contains("migrate()") && text.lines().count() == 1,
        "{text}"
    );
}

#[tokio::test]
async fn tables_of_a_newer_format_and_foreign_ones_are_refused() {
    let (builder, schema) = tables().await;
    let client = client(&server().url()).await;
    let newer = format!("update {schema}.meta set format = 2");
    client.batch_execute(&newer).await.expect("it is changed");
    for error in [
        builder.migrate().await.expect_err("newer"),
        builder.connect().await.expect_err("newer"),
    ] {
        assert!(matches!(error, ConnectError::NewerFormat { found: 2, .. }));
    }

    let schema = fresh_schema();
    let foreign = format!("create schema {schema}; create table {schema}.meta (name text)");
    client.batch_execute(&foreign).await.expect("a table");
    let builder = PostgresStore::builder()
        .url(&server().url())
        .schema(&schema);
    for error in [
        builder.migrate().await.expect_err("foreign"),
        builder.connect().await.expect_err("foreign"),
    ] {
        assert!(matches!(error, ConnectError::Foreign(_)), "{error:?}");
    }
}

/// An older version's functions: a migration puts the newer ones in their place, once, whoever comes first, and
/// beside a store at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_functions_are_told_and_replaced_beside_live_traffic() {
    let (builder, schema) = tables().await;
    let store = builder.clone().connect().await.expect("it connects");
    let owner = hold(&store, key(), 60 * SECOND).await;
    let client = client(&server().url()).await;
    let older = format!(
        "update {schema}.meta set functions = 0; \
         create or replace function {schema}.fence_high_v1(_resource bytea, out high bigint) \
         language sql stable as 'select 7::bigint'"
    );
    client.batch_execute(&older).await.expect("it is changed");
    let error = builder.clone().connect().await.expect_err("older");
    assert!(matches!(error, ConnectError::NotMigrated(_)), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("older") && text.contains("migrate()"),
        "{text}"
    );

    let over = AtomicBool::new(false);
    let traffic = async {
        while !over.load(Ordering::Relaxed) {
            let beats = store.renew(&[beat(owner)]).await.expect("an answer");
            assert!(matches!(
                beats[..],
                [Renewed::Renewed { .. } | Renewed::Unsure]
            ));
            let ask = Ask::new(&store, key(), SECOND);
            granted(store.claim(ask.request()).await.expect("an answer"));
        }
    };
    let migrations = async {
        let all = join_all((0..4).map(|_| builder.migrate())).await;
        over.store(true, Ordering::Relaxed);
        assert!(all.iter().all(Result::is_ok), "{all:?}");
    };
    tokio::join!(traffic, migrations);
    let store = builder.connect().await.expect("it connects");
    let high = store.high_water("seat").await.expect("an answer");
    assert_eq!(high, Token::ZERO, "the older function is gone");
    assert!(store.finish(finish(owner, "done")).await.is_ok());
}

#[tokio::test]
async fn the_documented_grants_are_enough_and_all_are_needed() {
    let (builder, schema) = tables().await;
    let names = Names::new(&schema, "").expect("a name");
    let owner = client(&server().url()).await;
    let role = format!("role_{schema}");
    let make = format!("create role {role} login");
    owner.batch_execute(&make).await.expect("a role");
    let url = format!("postgres://{role}@127.0.0.1:{}/postgres", server().port());
    let as_role = builder.url(&url);

    let error = as_role.clone().connect().await.expect_err("no rights");
    let text = error.to_string();
    assert!(text.contains("GRANT USAGE ON SCHEMA"), "{text}");
    assert_eq!(text.lines().count(), 1);

    owner
        .batch_execute(&names.grants(&role))
        .await
        .expect("granted");
    // Where all is in place, a migration needs no right to create.
    as_role.migrate().await.expect("nothing to do");
    let store = as_role.clone().connect().await.expect("it connects");
    let owned = hold(&store, key(), SECOND * 60).await;
    assert!(store.renew(&[beat(owned)]).await.is_ok());
    assert!(store.finish(finish(owned, "done")).await.is_ok());
    let ask = Ask::new(&store, key(), SECOND);
    granted(store.claim(ask.request()).await.expect("an answer"));
    assert!(store.release(ask.release()).await.is_ok());
    assert!(store.scan(None, 10).await.is_ok());
    assert!(store.purge_ended(10).await.is_ok());
    let admitted = store.admit("seat", owned.token, owned.nonce);
    assert!(admitted.await.is_ok());

    let revoke = format!("revoke delete on {schema}.spent from {role}");
    owner.batch_execute(&revoke).await.expect("revoked");
    let error = as_role.clone().connect().await.expect_err("no rights");
    assert!(matches!(error, ConnectError::NoRights { .. }));

    // Of a store that is open, too.
    let revoke = format!("revoke all on {schema}.claim from {role}");
    owner.batch_execute(&revoke).await.expect("revoked");
    let ask = Ask::new(&store, key(), SECOND);
    match store.claim(ask.request()).await {
        Err(StoreError::Unavailable(source)) => {
            assert!(source.to_string().contains("GRANT"), "{source}");
        }
        other => panic!("{other:?}"),
    }

    let nowhere = PostgresStore::builder()
        .url(&url)
        .schema(&fresh_schema())
        .migrate()
        .await
        .expect_err("no right to create");
    assert!(matches!(nowhere, ConnectError::NoRights { .. }));
}

/// The file, run by hand.
#[tokio::test]
async fn the_sql_file_run_through_psql_is_the_migration() {
    let server = Postgres::start();
    for _ in 0..2 {
        server.sql_file(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../crates/tower-claim-postgres/sql/v1.sql"
        ));
    }
    let store = PostgresStore::connect(&server.url()).await;
    let store = store.expect("it connects");
    let owner = hold(&store, key(), SECOND).await;
    assert!(store.finish(finish(owner, "done")).await.is_ok());
    let by_hand = server.sql("select prosrc from pg_proc where proname = 'claim_v1'");
    let migrated = PostgresStore::builder().url(&server.url()).schema("other");
    migrated.migrate().await.expect("it migrates");
    let of_other = "select prosrc from pg_proc p join pg_namespace n on n.oid = p.pronamespace \
        where proname = 'claim_v1' and nspname = 'other'";
    let text = server.sql(of_other).replace("\"other\".", "tower_claim.");
    assert_eq!(text, by_hand);
}
