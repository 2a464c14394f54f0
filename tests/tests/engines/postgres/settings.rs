//! Servers, databases and roles with settings that hurt: each works, or is refused in one line that says the mend.

use std::time::Duration;

use tokio_postgres::Client;
use tower_claim::store::{Finish, State};
use tower_claim::{ClaimStore, Key, StoreError};
use tower_claim_postgres::{ConnectError, Names, PostgresStore};

use super::roles::{as_role, says, works};
use super::scene::{Ask, SECOND, client, finish, hold, key, tables};
use super::{fresh_schema, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_with_odd_settings_is_served() {
    let odd: [&[&str]; 5] = [
        &["timezone = 'Pacific/Apia'", "datestyle = 'SQL, DMY'"],
        &["intervalstyle = 'sql_standard'", "bytea_output = 'escape'"],
        &["search_path = ''", "standard_conforming_strings = off"],
        &["lock_timeout = '1ms'", "statement_timeout = '15s'"],
        &[
            "extra_float_digits = -15",
            "plan_cache_mode = force_generic_plan",
            "default_transaction_deferrable = on",
        ],
    ];
    let each = odd.map(async |settings| {
        let (builder, _, _) = as_role(settings).await;
        for prepared in [false, true] {
            let builder = builder.clone().prepared_statements(prepared);
            let store = builder.connect().await.expect("it connects");
            works(&store).await;
        }
    });
    futures_util::future::join_all(each).await;
}

/// A stranger's session that has this key's row locked.
async fn locked(schema: &str, key: Key) -> Client {
    let stranger = client(&server().url()).await;
    stranger.batch_execute("begin").await.expect("it begins");
    let row = format!("select from {schema}.claim where key = $1 for update");
    let bytes = key.as_bytes().as_slice();
    stranger.query(&row, &[&bytes]).await.expect("it locks");
    stranger
}

/// The role's bound on locks is not ours: a call waits as long as the store says, longer or shorter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_a_lock_by_the_stores_bound_and_not_by_the_roles() {
    let (builder, schema, _) = as_role(&["lock_timeout = '1ms'"]).await;
    let store = builder.connect().await.expect("it connects");
    let owner = hold(&store, key(), 60 * SECOND).await;
    let stranger = locked(&schema, owner.key).await;
    let (done, ()) = tokio::join!(store.finish(finish(owner, "done")), async {
        tokio::time::sleep(SECOND / 4).await;
        stranger.batch_execute("rollback").await.expect("it ends");
    });
    assert_eq!(done.expect("it waited"), Finish::Finished);

    let (builder, schema, _) = as_role(&["lock_timeout = '60s'"]).await;
    let store = builder.clone().connect().await.expect("it connects");
    let owner = hold(&store, key(), 60 * SECOND).await;
    let builder = builder.call_timeout(SECOND);
    let store = builder.connect().await.expect("it connects");
    let _stranger = locked(&schema, owner.key).await;
    let late = store.finish(finish(owner, "late")).await;
    assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
}

/// With a pool of one whose connection waits elsewhere: soon, and in words that say what to change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_gets_no_connection_is_unavailable_and_was_not_sent() {
    let (builder, schema) = tables().await;
    let builder = builder.pool_size(1).pool_wait(SECOND / 5);
    let builder = builder.call_timeout(10 * SECOND);
    let store = builder.connect().await.expect("it connects");
    let owner = hold(&store, key(), 60 * SECOND).await;
    let stranger = locked(&schema, owner.key).await;
    let ask = Ask::new(&store, key(), SECOND);
    let (done, refused) = tokio::join!(store.finish(finish(owner, "done")), async {
        tokio::time::sleep(SECOND / 10).await;
        let refused = store.claim(ask.request()).await;
        stranger.batch_execute("rollback").await.expect("it ends");
        refused
    });
    assert_eq!(done.expect("it waited"), Finish::Finished);
    let Err(StoreError::Unavailable(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.to_string().contains("1 of 1 are in use"), "{why}");
    assert_eq!(store.peek(ask.key).await.expect("an answer"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_the_server_cancels_was_not_applied() {
    // A busy machine is not that slow.
    let (builder, schema, _) = as_role(&["statement_timeout = '2s'"]).await;
    let store = builder.call_timeout(20 * SECOND);
    let store = store.connect().await.expect("it connects");
    let owner = hold(&store, key(), 60 * SECOND).await;
    let stranger = locked(&schema, owner.key).await;
    let late = store.finish(finish(owner, "late")).await;
    assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
    stranger.batch_execute("rollback").await.expect("it ends");
    let view = store.peek(owner.key).await.expect("an answer");
    assert_eq!(view.expect("a record").state, State::Held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_under_which_claims_would_fail_are_refused_with_their_mend() {
    for level in ["serializable", "repeatable read"] {
        let isolation = format!("default_transaction_isolation = '{level}'");
        let (builder, _, role) = as_role(&[&isolation]).await;
        says(builder.clone().connect().await, "read committed");
        // The mend in the refusal, as it is written there.
        let url = format!(
            "postgres://{role}@127.0.0.1:{}/postgres?options=-cdefault_transaction_isolation=read%5C%20committed",
            server().port()
        );
        let store = builder.url(&url).connect().await.expect("it is mended");
        works(&store).await;
    }
    let (builder, _, _) = as_role(&["default_transaction_read_only = on"]).await;
    says(builder.connect().await, "primary");
}

/// A row that is hidden is one that is not there: claimed twice, granted twice.
#[tokio::test]
async fn row_security_on_any_table_is_refused_with_its_mend() {
    let (builder, schema, role) = as_role(&[]).await;
    let owner = client(&server().url()).await;
    let mut tables = ["claim", "spent", "fence"].iter().peekable();
    while let Some(table) = tables.next() {
        let security = async |how: &str| {
            let set = format!("alter table {schema}.{table} {how} row level security");
            owner.batch_execute(&set).await.expect("it is changed");
        };
        security("enable").await;
        let refused = builder.clone().connect().await;
        says(refused, "DISABLE ROW LEVEL SECURITY");
        if tables.peek().is_some() {
            security("disable").await;
            let store = builder.clone().connect().await;
            works(&store.expect("it is mended")).await;
        }
    }
    let show = format!("alter role {role} bypassrls");
    owner.batch_execute(&show).await.expect("it is shown");
    works(&builder.connect().await.expect("it is mended")).await;
}

/// Some houses take EXECUTE from PUBLIC.
#[tokio::test]
async fn a_role_that_may_not_call_the_functions_hears_what_to_grant() {
    let (builder, schema, _) = as_role(&[]).await;
    let owner = client(&server().url()).await;
    let revoke = format!("revoke execute on all functions in schema {schema} from public");
    owner.batch_execute(&revoke).await.expect("revoked");
    let error = builder.clone().connect().await.expect_err("no rights");
    let ConnectError::NoRights { grants } = error else {
        panic!("{error:?}");
    };
    owner.batch_execute(&grants).await.expect("granted");
    works(&builder.connect().await.expect("it is mended")).await;

    let (builder, schema) = tables().await;
    let drop = format!("drop function {schema}.mark_v1");
    owner.batch_execute(&drop).await.expect("it is gone");
    let half = builder.connect().await;
    assert!(matches!(half, Err(ConnectError::Foreign(_))), "{half:?}");
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_label_is_refused() {
    let owner = client(&server().url()).await;
    let name = format!("latin_{}", fresh_schema());
    let make = format!("create database {name} encoding 'LATIN1' locale 'C' template template0");
    owner.batch_execute(&make).await.expect("a database");
    let url = format!("postgres://postgres@127.0.0.1:{}/{name}", server().port());
    let migrated = PostgresStore::migrate(&url).await;
    migrated.expect("it migrates");
    says(PostgresStore::connect(&url).await, "UTF8");
}

/// Words of SQL, and names as long as they may be.
#[tokio::test]
async fn a_schema_whose_name_must_be_quoted_is_served() {
    let long = format!("{:a<63}", fresh_schema());
    for (schema, prefix) in [
        ("user", "select_"),
        ("order", ""),
        (&*long, &*"p".repeat(32)),
    ] {
        let builder = PostgresStore::builder().url(&server().url());
        let builder = builder.schema(schema).table_prefix(prefix);
        builder.migrate().await.expect("it migrates");
        builder.migrate().await.expect("nothing to do");
        works(&builder.connect().await.expect("it connects")).await;
        let names = Names::new(schema, prefix).expect("a name");
        let owner = client(&server().url()).await;
        let role = format!("Odd \"{schema}\" role");
        let make = format!("create role \"{}\" login", role.replace('"', "\"\""));
        owner.batch_execute(&make).await.expect("a role");
        let grants = names.grants(&role);
        owner.batch_execute(&grants).await.expect("granted");
    }
}

#[tokio::test]
async fn settings_of_the_store_out_of_all_bounds_are_refused() {
    let builder = || PostgresStore::builder().url(&server().url());
    for (odd, names) in [
        (builder().call_timeout(Duration::MAX), "call_timeout"),
        (builder().call_timeout(Duration::ZERO), "call_timeout"),
        (builder().pool_wait(Duration::MAX), "pool_wait"),
        (builder().poll_step(Duration::ZERO), "poll_step"),
        (builder().poll_step(Duration::MAX), "poll_step"),
        (builder().pool_size(usize::MAX), "pool_size"),
        (builder().pool_size(0), "pool_size"),
        (builder().purge_every(Some(Duration::ZERO)), "purge_every"),
        (builder().schema("Shop"), "schema"),
        (builder().schema("pg_shop"), "schema"),
        (PostgresStore::builder(), "url"),
    ] {
        says(odd.clone().connect().await, names);
        assert!(matches!(odd.migrate().await, Err(ConnectError::Config(_))));
    }
    let (builder, _) = tables().await;
    let builder = builder.purge_every(Some(Duration::MAX));
    works(&builder.connect().await.expect("it connects")).await;
}
