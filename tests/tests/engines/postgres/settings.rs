//! Servers, databases and roles with settings that hurt: each works, or is refused in one line that says the mend.

use std::time::Duration;

use tower_claim::store::{Claimed, Event, Finish, Promise, State, Value};
use tower_claim::{ClaimAdmin, ClaimMany, ClaimStore, FenceStore, LapsePolicy, StoreError};
use tower_claim_postgres::{ConnectError, Names, PostgresStore, PostgresStoreBuilder};

use super::scene::{Ask, SECOND, beat, client, finish, granted, hold, key, nonce, tables};
use super::{fresh_schema, server};

/// A role with these settings and the documented rights, and the store's builder for it.
async fn as_role(settings: &[&str]) -> (PostgresStoreBuilder, String, String) {
    let (builder, schema) = tables().await;
    let role = format!("role_{schema}");
    let owner = client(&server().url()).await;
    let grants = Names::new(&schema, "").expect("a name").grants(&role);
    let make = format!("create role {role} login; {grants}");
    owner.batch_execute(&make).await.expect("a role");
    for setting in settings {
        let set = format!("alter role {role} set {setting}");
        owner.batch_execute(&set).await.expect("it is set");
    }
    let url = format!("postgres://{role}@127.0.0.1:{}/postgres", server().port());
    (builder.url(&url), schema, role)
}

/// Every call once, and what it must answer.
async fn works(store: &PostgresStore) {
    let mut ask = Ask::new(store, key(), 60 * SECOND);
    ask.settings.label = "Grüße, \u{1f980} \0".into();
    let answer = store.claim(ask.request()).await.expect("an answer");
    let owner = ask.owner(granted(answer).token);
    let beats = store.renew(&[beat(owner)]).await.expect("an answer");
    assert!(
        matches!(beats[..], [tower_claim::store::Renewed::Renewed { rest, .. }] if rest > 59 * SECOND)
    );
    let other = Ask::new(store, ask.key, SECOND);
    match store.claim(other.request()).await.expect("an answer") {
        Claimed::Busy(busy) => {
            assert!(busy.expires_in > 50 * SECOND, "{busy:?}");
            assert!(busy.label.starts_with("Grüße, \u{1f980}"), "{busy:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(store.mark(owner).await.is_ok());
    // Each byte there is, also where the server would write them in its own way.
    let bytes: Vec<u8> = (0..=255).collect();
    let mut done = finish(owner, "");
    done.value = Value::Kept(bytes.clone().into());
    done.keep = 30 * 24 * 60 * 60 * SECOND;
    let done = store.finish(done).await;
    assert_eq!(done.ok(), Some(Finish::Finished));
    match store.claim(other.request()).await.expect("an answer") {
        Claimed::Done(done) => {
            assert_eq!(done.value, Value::Kept(bytes.into()));
            let keep = done.keep_left;
            assert!(keep > (30 * 24 * 60 - 1) * 60 * SECOND, "{keep:?}");
        }
        other => panic!("{other:?}"),
    }
    let released = Ask::new(store, key(), SECOND);
    granted(store.claim(released.request()).await.expect("an answer"));
    assert!(store.release(released.release()).await.is_ok());
    let mut lapsing = Ask::new(store, key(), Duration::from_millis(1));
    lapsing.settings.on_lapse = LapsePolicy::Hold;
    granted(store.claim(lapsing.request()).await.expect("an answer"));
    tokio::time::sleep(Duration::from_millis(3)).await;
    let view = store.peek(lapsing.key).await.expect("an answer");
    assert_eq!(view.expect("a record").state, State::Unknown);
    let mut keys = [key(), key()];
    keys.sort_unstable();
    let many = tower_claim::store::ClaimManyRequest {
        keys: &keys,
        nonce: nonce(),
        settings: &ask.settings,
        floor: tower_claim::Token::ZERO,
        not_after: ask.not_after,
    };
    let answer = store.claim_many(many).await.expect("an answer");
    assert!(matches!(
        answer,
        tower_claim::store::ClaimedMany::Granted(_)
    ));
    assert!(
        store
            .scan(None, 100)
            .await
            .expect("an answer")
            .records
            .len()
            >= 4
    );
    assert!(store.admit("seat", owner.token, owner.nonce).await.is_ok());
    assert!(store.purge(100).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_with_odd_settings_is_served() {
    let odd: [&[&str]; 5] = [
        &["timezone = 'Pacific/Apia'", "datestyle = 'SQL, DMY'"],
        &["intervalstyle = 'sql_standard'", "bytea_output = 'escape'"],
        &["search_path = ''", "standard_conforming_strings = off"],
        &["lock_timeout = '1ms'", "statement_timeout = '1500ms'"],
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

/// The role's bound on locks is not ours: a claim waits as long as the store says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_the_server_cancels_was_not_applied() {
    let (builder, schema, _) = as_role(&["statement_timeout = '200ms'"]).await;
    let store = builder.connect().await.expect("it connects");
    let owner = hold(&store, key(), 60 * SECOND).await;
    let stranger = client(&server().url()).await;
    stranger.batch_execute("begin").await.expect("it begins");
    let row = format!("select from {schema}.claim where key = $1 for update");
    let bytes = owner.key.as_bytes().as_slice();
    stranger.query(&row, &[&bytes]).await.expect("it locks");
    let late = store.finish(finish(owner, "late")).await;
    assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
    stranger.batch_execute("rollback").await.expect("it ends");
    let view = store.peek(owner.key).await.expect("an answer");
    assert_eq!(view.expect("a record").state, State::Held);
}

#[track_caller]
fn says(answer: Result<PostgresStore, ConnectError>, mend: &str) {
    let text = answer.expect_err("it is refused").to_string();
    assert!(text.contains(mend) && text.lines().count() == 1, "{text}");
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

    let (builder, schema, role) = as_role(&[]).await;
    let owner = client(&server().url()).await;
    let hide = format!("alter table {schema}.spent enable row level security");
    owner.batch_execute(&hide).await.expect("it is hidden");
    says(
        builder.clone().connect().await,
        "DISABLE ROW LEVEL SECURITY",
    );
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

fn forgets(store: &PostgresStore, event: Event) -> bool {
    store.capabilities().weakened.may(event, Promise::OneResult)
}

#[tokio::test]
async fn a_server_that_may_lose_a_commit_in_a_crash_may_forget() {
    let (builder, _, _) = as_role(&["synchronous_commit = off"]).await;
    let store = builder.connect().await.expect("it connects");
    assert!(forgets(&store, Event::Restart) && store.capabilities().may_forget());
    let server = system_tests::servers::Postgres::with(&["fsync=off"]);
    let builder = PostgresStore::builder().url(&server.url());
    builder.migrate().await.expect("it migrates");
    let store = builder.connect().await.expect("it connects");
    assert!(forgets(&store, Event::Restart) && store.capabilities().may_forget());

    let (builder, schema) = tables().await;
    let store = builder.clone().connect().await.expect("it connects");
    assert_eq!(store.capabilities(), PostgresStore::CAPABILITIES);
    assert!(!store.capabilities().may_forget());
    let owner = client(&super::server().url()).await;
    let unlogged = format!("alter table {schema}.claim set unlogged");
    owner.batch_execute(&unlogged).await.expect("it is changed");
    let store = builder.connect().await.expect("it connects");
    assert!(forgets(&store, Event::Restart));
}

/// Nobody must say that there are replicas: the server shows them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_wait_for_its_replicas_may_forget() {
    let primary = system_tests::servers::Postgres::start();
    let builder = PostgresStore::builder().url(&primary.url());
    builder.migrate().await.expect("it migrates");
    let open = async || builder.clone().connect().await.expect("it connects");
    assert!(!open().await.capabilities().may_forget(), "no replica yet");

    // A role without any right to look at others' sessions sees them, too.
    let role = "create role app login";
    let grants = Names::default().grants("app");
    primary.sql(&format!("{role}; {grants}"));
    let port = primary.port();
    let app = format!("postgres://app@127.0.0.1:{port}/postgres");
    let copying =
        tokio::task::spawn_blocking(move || system_tests::servers::Postgres::replica_of(port));
    let _replica = copying.await.expect("the primary can be copied");
    super::scene::until("the replica streams", async || {
        primary.sql("select count(*) from pg_stat_replication where state = 'streaming'") == "1"
    })
    .await;
    for url in [primary.url(), app] {
        let builder = builder.clone().url(&url);
        let store = builder.clone().connect().await.expect("it connects");
        assert!(forgets(&store, Event::Failover) && store.capabilities().may_forget());
        // Its user knows better.
        let readers = builder.asynchronous_failover(false).connect().await;
        assert!(!readers.expect("it connects").capabilities().may_forget());
    }
    primary.sql("alter system set synchronous_standby_names = '*'");
    primary.sql("select pg_reload_conf()");
    super::scene::until("it waits for its replica", async || {
        !open().await.capabilities().may_forget()
    })
    .await;
    primary.sql("alter role postgres set synchronous_commit = local");
    assert!(forgets(&open().await, Event::Failover));
}
