//! A guard's marks as they are stored: of this format, of a future one, and of none.

use tower_claim::store::Admission;
use tower_claim::{FenceStore, Nonce, StoreError, Token};
use tower_claim_postgres::{ConnectError, PostgresStore, TransactionError};

use super::scene::{client, nonce, store, tables};
use super::server;

/// Marks as format 1 writes them. Never change this text: later versions must read it.
const GOLDEN: &str = include_str!("golden_marks_v1.sql");
const BY: Nonce = Nonce::from_bytes([6; 16]);

fn token(above: u64) -> Token {
    Token::new(1_900_000_000_000_000 + above).expect("below 2^53")
}

#[tokio::test]
async fn marks_of_format_1_are_read() {
    let (store, schema) = store().await;
    let client = client(&server().url()).await;
    let rows = GOLDEN.replace("tower_claim.", &format!("{schema}."));
    client.batch_execute(&rows).await.expect("golden rows");
    let admit = async |resource, token, by| {
        let answer = store.admit(resource, token, by).await;
        answer.expect("an answer")
    };
    let (stale, collision) = (
        Admission::Stale { high: token(5) },
        Admission::Collision { high: token(5) },
    );
    for resource in ["ledger", "shut"] {
        let high = store.high_water(resource).await;
        assert_eq!(high.expect("an answer"), token(5));
        assert_eq!(admit(resource, token(4), BY).await, stale);
    }
    assert_eq!(admit("ledger", token(5), BY).await, Admission::Admitted);
    assert_eq!(admit("ledger", token(5), nonce()).await, collision);
    assert_eq!(admit("shut", token(5), BY).await, stale);
    assert_eq!(admit("shut", token(6), BY).await, Admission::Admitted);
}

/// A column that is added, renamed or dropped is another format.
#[tokio::test]
async fn marks_are_written_as_format_1() {
    let ((_, golden), (store, schema)) = (store().await, store().await);
    let client = client(&server().url()).await;
    let rows = GOLDEN.replace("tower_claim.", &format!("{golden}."));
    client.batch_execute(&rows).await.expect("golden rows");
    let admitted = store.admit("ledger", token(5), BY).await;
    assert_eq!(admitted.ok(), Some(Admission::Admitted));
    assert!(store.admit("shut", token(4), BY).await.is_ok());
    let raised = store.raise_floor("shut", token(5)).await;
    assert_eq!(raised.ok(), Some(token(5)));
    let all = |of: &str| format!("select id, resource, high, nonce from {of}.fence");
    let differ = format!(
        "select count(*) from (({0} except {1}) union all ({1} except {0})) x",
        all(&golden),
        all(&schema)
    );
    let row = client.query_one(&differ, &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 0);
    let columns = "select string_agg(column_name, ' ' order by ordinal_position) \
        from information_schema.columns where table_schema = $1 and table_name = 'fence'";
    let row = client.query_one(columns, &[&schema]).await;
    let columns: String = row.expect("columns").get(0);
    assert_eq!(columns, "id resource high nonce since");
}

/// All that may be asked of a guard, refused with the resource's name.
async fn all_refused(store: &PostgresStore) {
    let mut client = client(&server().url()).await;
    let transaction = client.transaction().await.expect("it begins");
    let inside = store.fence_in(&transaction, "ledger", token(5), BY).await;
    let inside = match inside {
        Err(TransactionError::Store(error)) => Some(error),
        other => panic!("{other:?}"),
    };
    let errors = [
        inside,
        store.admit("ledger", token(5), BY).await.err(),
        store.raise_floor("ledger", token(5)).await.err(),
        store.high_water("ledger").await.err(),
    ];
    for (n, error) in errors.into_iter().enumerate() {
        assert!(
            matches!(&error, Some(StoreError::Garbled { key_prefix, .. }) if key_prefix == "ledger"),
            "call {n}: {error:?}"
        );
    }
}

#[tokio::test]
async fn what_is_no_mark_cannot_be_stored() {
    let (store, schema) = store().await;
    assert!(store.admit("ledger", token(5), BY).await.is_ok());
    let client = client(&server().url()).await;
    for odd in ["high = -1", "high = 9007199254740992", "nonce = '\\x06'"] {
        let changed = format!("update {schema}.fence set {odd}");
        let error = client.batch_execute(&changed).await.expect_err("checked");
        let code = error.code().map(|code| code.code());
        assert_eq!(code, Some("23514"), "{odd}");
    }
}

/// A mark has no format of its own. The tables' own refuses a store that comes later, and not one that is open: a
/// later format's migration tells that one by the functions it calls.
#[tokio::test]
async fn marks_of_a_future_format_are_refused_at_the_door_and_by_the_functions() {
    let (builder, schema) = tables().await;
    let store = builder.clone().connect().await.expect("it connects");
    assert!(store.admit("ledger", token(5), BY).await.is_ok());
    let client = client(&server().url()).await;
    let newer = format!("update {schema}.meta set format = 2");
    client.batch_execute(&newer).await.expect("it is changed");
    let late = builder.connect().await.expect_err("newer");
    assert!(matches!(late, ConnectError::NewerFormat { found: 2, .. }));
    assert_eq!(store.high_water("ledger").await.ok(), Some(token(5)));

    for function in [
        "fence_high_v1(_resource bytea, out high bigint)",
        "fence_raise_v1(_resource bytea, _name text, _floor bigint, _lock_ms integer, out high bigint)",
        "fence_admit_v1(_resource bytea, _name text, _token bigint, _nonce bytea, _stay boolean, \
         _lock_ms integer, out answer text, out high bigint)",
    ] {
        let tells = format!(
            "create or replace function {schema}.{function} language plpgsql as \
             $$ begin raise exception 'marks of format 2' using errcode = 'TC001'; end $$"
        );
        client.batch_execute(&tells).await.expect("it is replaced");
    }
    all_refused(&store).await;
}
