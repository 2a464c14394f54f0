//! The tables: made, known again, refused; rows of this format and of a future one.

use futures_util::future::join_all;
use system_tests::servers::Postgres;
use tower_claim::store::{Claimed, Renewed, Resolution, State};
use tower_claim::{ClaimAdmin, ClaimStore, Key, LapsePolicy, StoreError};
use tower_claim_postgres::{ConnectError, Names, PostgresStore};

use super::scene::{Ask, SECOND, beat, client, finish, granted, hold, key, store, tables};
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
    assert!(store.purge(10).await.is_ok());
    let admitted = tower_claim::FenceStore::admit(&store, "seat", owned.token, owned.nonce);
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

#[tokio::test]
async fn a_server_that_is_not_there_or_takes_no_writes_is_told_in_one_line() {
    let nobody = PostgresStore::connect("postgres://nobody@127.0.0.1:1/none").await;
    let garbled = PostgresStore::connect("postgres://:::").await;
    let tls = PostgresStore::connect("postgres://a@127.0.0.1/a?sslmode=require").await;
    let (builder, schema) = tables().await;
    let read_only = format!(
        "{}?options=-cdefault_transaction_read_only=on",
        server().url()
    );
    let replica = builder.clone().url(&read_only).connect().await;
    for (answer, says) in [
        (nobody, "connecting"),
        (garbled, "postgres://USER"),
        (tls, "tls_root"),
        (replica, "primary"),
    ] {
        let text = answer.expect_err("no store").to_string();
        assert!(text.contains(says) && text.lines().count() == 1, "{text}");
    }

    // A primary that became a replica under an open store.
    let store = builder.pool_size(1).connect().await.expect("it connects");
    let client = client(&server().url()).await;
    let role = format!("demoted_{schema}");
    let names = Names::new(&schema, "").expect("a name");
    let make = format!("create role {role} login; {}", names.grants(&role));
    client.batch_execute(&make).await.expect("a role");
    let url = format!("postgres://{role}@127.0.0.1:{}/postgres", server().port());
    drop(store);
    let builder = PostgresStore::builder().url(&url).schema(&schema);
    let store = builder.pool_size(1).connect().await.expect("it connects");
    let demote = format!(
        "alter role {role} set default_transaction_read_only = on; \
         select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'"
    );
    client.batch_execute(&demote).await.expect("it is changed");
    super::scene::until("the session is gone", async || {
        let ask = Ask::new(&store, key(), SECOND);
        match store.claim(ask.request()).await {
            Err(StoreError::Unavailable(source)) => source.to_string().contains("primary"),
            Err(StoreError::Ambiguous(_)) => false,
            other => panic!("{other:?}"),
        }
    })
    .await;
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

/// Rows as format 1 writes them, in all states. Never change this text: later versions must read it.
const GOLDEN: &str = include_str!("golden_v1.sql");

fn golden(n: u8) -> Key {
    Key::from_bytes([n; 32])
}

#[tokio::test]
async fn rows_of_format_1_are_read() {
    let (store, schema) = store().await;
    let client = client(&server().url()).await;
    let rows = GOLDEN.replace("tower_claim.", &format!("{schema}."));
    client.batch_execute(&rows).await.expect("golden rows");
    let views = [
        (1, State::Free),
        (2, State::Held),
        (3, State::Done),
        (4, State::Unknown),
    ];
    for (n, state) in views {
        let view = store.peek(golden(n)).await.expect("an answer");
        let view = view.expect("a record");
        assert_eq!(view.state, state);
        assert_eq!(view.token.get(), 1_900_000_000_000_000 + u64::from(n));
        assert_eq!(view.nonce.as_bytes(), &[n; 16]);
    }
    let held = store.peek(golden(2)).await.expect("an answer");
    let held = held.expect("a record");
    assert_eq!(
        (&*held.label, held.progress, held.marked),
        ("lease 1", 7, true)
    );
    assert_eq!(held.fingerprint.map(|f| *f.as_bytes()), Some([9; 32]));
    let ask = Ask::new(&store, golden(3), SECOND);
    match store.claim(ask.request()).await {
        Ok(Claimed::Done(done)) => {
            let kept = tower_claim::store::Value::Kept("golden".into());
            assert_eq!(done.value, kept);
        }
        other => panic!("{other:?}"),
    }
    let mut spent = Ask::new(&store, golden(1), SECOND);
    spent.nonce = tower_claim::Nonce::from_bytes([5; 16]);
    assert_eq!(
        store.claim(spent.request()).await.ok(),
        Some(Claimed::Ended)
    );
}

#[tokio::test]
async fn a_row_of_a_future_format_is_refused_with_its_prefix() {
    let (store, schema) = store().await;
    let owner = hold(&store, key(), 60 * SECOND).await;
    let client = client(&server().url()).await;
    let newer = format!("update {schema}.claim set format = 2");
    client.batch_execute(&newer).await.expect("it is changed");
    let ask = Ask::new(&store, owner.key, SECOND);
    let answers = [
        store.claim(ask.request()).await.err(),
        store.finish(finish(owner, "done")).await.err(),
        store.mark(owner).await.err(),
        store.release(ask.release()).await.err(),
        store.peek(owner.key).await.err(),
        store.watch(owner.key, owner.token).await.err(),
        store.break_claim(owner.key, owner.token).await.err(),
        store
            .resolve(owner.key, owner.token, Resolution::Absent)
            .await
            .err(),
    ];
    for (n, error) in answers.into_iter().enumerate() {
        let Some(StoreError::Garbled { key_prefix, .. }) = error else {
            panic!("call {n}: {error:?}");
        };
        assert_eq!(key_prefix, owner.key.prefix(), "call {n}");
    }
    // In a batch it is doubt: the neighbours are renewed.
    let neighbour = hold(&store, key(), 60 * SECOND).await;
    let answers = store.renew(&[beat(owner), beat(neighbour)]).await;
    let answers = answers.expect("an answer");
    assert_eq!(answers[0], Renewed::Unsure);
    assert!(matches!(answers[1], Renewed::Renewed { .. }));
    assert!(store.purge(100).await.is_ok());
}

#[tokio::test]
async fn a_purge_drops_what_has_nothing_left_to_say_and_nothing_else() {
    let (store, schema) = store().await;
    let client = client(&server().url()).await;
    let count =
        format!("select count(*), (select count(*) from {schema}.spent) from {schema}.claim");
    // Long enough for what comes before the first look, on a busy machine too.
    let (begun, brief) = (std::time::Instant::now(), 4 * SECOND);
    let short = |key| Ask {
        not_after: store.now().saturating_add(brief),
        ..Ask::new(&store, key, brief)
    };
    let again = key();
    for _ in 0..5 {
        let ask = short(again);
        granted(store.claim(ask.request()).await.expect("an answer"));
        assert!(store.release(ask.release()).await.is_ok());
    }
    for _ in 0..20 {
        let ask = short(key());
        granted(store.claim(ask.request()).await.expect("an answer"));
        assert!(store.release(ask.release()).await.is_ok());
    }
    let live = hold(&store, key(), 60 * SECOND).await;
    let done = hold(&store, key(), brief).await;
    assert!(store.finish(finish(done, "done")).await.is_ok());
    let mut unknown = Ask::new(&store, key(), brief);
    unknown.settings.on_lapse = LapsePolicy::Hold;
    granted(store.claim(unknown.request()).await.expect("an answer"));

    let early = store.purge(100).await.expect("an answer").dropped;
    assert!(early == 0 || begun.elapsed() > brief, "{early}");
    let over = store.now().saturating_add(brief);
    // A purge looks again a second after it has looked.
    tokio::time::sleep(brief + SECOND * 11 / 10).await;
    assert!(store.now() > over);
    let mut dropped = early;
    loop {
        let purged = store.purge(7).await.expect("an answer");
        dropped += purged.dropped;
        if !purged.more {
            break;
        }
    }
    assert_eq!(dropped, 21);
    let row = client.query_one(&count, &[]).await.expect("a count");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (3, 0));
    assert!(matches!(
        store.renew(&[beat(live)]).await.expect("an answer")[..],
        [Renewed::Renewed { .. }]
    ));
    let ask = Ask::new(&store, done.key, SECOND);
    let answer = store.claim(ask.request()).await.expect("an answer");
    assert!(matches!(answer, Claimed::Done(_)));
    let ask = Ask::new(&store, unknown.key, SECOND);
    let answer = store.claim(ask.request()).await.expect("an answer");
    assert!(matches!(answer, Claimed::Unknown(_)));
}

/// Beyond the bound the spent nonces of a key fold, and each is still refused.
#[tokio::test]
async fn spent_nonces_are_bounded_and_none_is_granted_again() {
    let (store, schema) = store().await;
    let key = key();
    let client = client(&server().url()).await;
    let first = Ask::new(&store, key, 60 * SECOND);
    granted(store.claim(first.request()).await.expect("an answer"));
    // Released by nonce, claims still under way: each is remembered beside the holder.
    let refused: Vec<Ask> = (0..4_400u64)
        .map(|n| Ask {
            not_after: first
                .not_after
                .saturating_add(std::time::Duration::from_millis(n)),
            ..Ask::new(&store, key, SECOND)
        })
        .collect();
    for batch in refused.chunks(400) {
        let releases: Vec<_> = batch.iter().map(Ask::release).collect();
        let answers = tower_claim::ClaimMany::release_many(&store, &releases).await;
        assert_eq!(answers.expect("an answer").len(), batch.len());
    }
    let count = format!("select count(*) from {schema}.spent");
    let kept: i64 = client.query_one(&count, &[]).await.expect("a count").get(0);
    assert!(
        (2_000..=4_200).contains(&kept),
        "{kept} are kept one by one"
    );
    assert!(store.release(first.release()).await.is_ok());
    for ask in refused.iter().step_by(97).chain([&first]) {
        let answer = store.claim(ask.request()).await.expect("an answer");
        assert_eq!(answer, Claimed::Ended);
    }
    let newcomer = Ask {
        not_after: store.now().saturating_add(200 * SECOND),
        ..Ask::new(&store, key, SECOND)
    };
    granted(store.claim(newcomer.request()).await.expect("an answer"));
}
