//! Marks of a guard: golden ones of version 1, and what is none.

use redis::aio::MultiplexedConnection;
use tower_claim::store::Admission;
use tower_claim::{FenceStore, StoreError, Token};
use tower_claim_redis::RedisStore;

use super::{Fields, fields, owner, put};
use crate::redis::{fresh, key, nonce, raw, server};

const MARK: &str = include_str!("golden/mark.txt");
const FLOOR: &str = include_str!("golden/floor.txt");

async fn guard() -> (RedisStore, String) {
    let prefix = fresh();
    let builder = RedisStore::builder().url(server().url()).prefix(&prefix);
    (builder.connect().await.unwrap(), prefix)
}

async fn stored(raw: &mut MultiplexedConnection, name: &str) -> Fields {
    let mut command = redis::cmd("HGETALL");
    let mut all: Fields = command.arg(name).query_async(raw).await.unwrap();
    all.sort();
    all
}

fn sorted(golden: &str) -> Fields {
    let mut all = fields(golden);
    all.sort();
    all
}

#[tokio::test]
async fn marks_of_version_1_are_read() {
    let (guard, prefix) = guard().await;
    let mut raw = raw().await;
    let (token, by) = (owner(key()).token, owner(key()).nonce);
    let next = Token::new(token.get() + 1).unwrap();
    let admit = async |resource, token, nonce| guard.admit(resource, token, nonce).await.unwrap();

    put(&mut raw, &format!("{prefix}fence:ledger"), &fields(MARK)).await;
    assert_eq!(guard.high_water("ledger").await.unwrap(), token);
    assert_eq!(admit("ledger", token, by).await, Admission::Admitted);
    let (collision, stale) = (
        Admission::Collision { high: token },
        Admission::Stale { high: token },
    );
    assert_eq!(admit("ledger", token, nonce()).await, collision);
    let before = Token::new(token.get() - 1).unwrap();
    assert_eq!(admit("ledger", before, by).await, stale);

    put(&mut raw, &format!("{prefix}fence:shut"), &fields(FLOOR)).await;
    assert_eq!(guard.high_water("shut").await.unwrap(), token);
    assert_eq!(admit("shut", token, by).await, stale);
    assert_eq!(admit("shut", next, by).await, Admission::Admitted);
}

/// A field that is added, renamed or dropped is another version.
#[tokio::test]
async fn marks_are_written_as_version_1() {
    let (guard, prefix) = guard().await;
    let mut raw = raw().await;
    let name = format!("{prefix}fence:ledger");
    let (token, by) = (owner(key()).token, owner(key()).nonce);
    let admitted = guard.admit("ledger", token, by).await.unwrap();
    assert_eq!(admitted, Admission::Admitted);
    assert_eq!(stored(&mut raw, &name).await, sorted(MARK));
    assert_eq!(guard.raise_floor("ledger", token).await.unwrap(), token);
    assert_eq!(stored(&mut raw, &name).await, sorted(FLOOR));
}

#[tokio::test]
async fn what_is_no_mark_of_this_version_is_refused_with_its_resource() {
    let (guard, prefix) = guard().await;
    let mut raw = raw().await;
    let name = format!("{prefix}fence:ledger");
    let of = |all: &[(&str, &str)]| -> Fields {
        let one = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
        all.iter().map(one).collect()
    };
    for no_mark in [
        of(&[("v", "2"), ("high", "7")]),
        of(&[("v", "1"), ("high", "-7")]),
        of(&[("v", "1"), ("high", "9007199254740992")]),
        of(&[("v", "1"), ("high", "")]),
        of(&[("v", "1")]),
        of(&[("high", "7")]),
        of(&[("theirs", "1")]),
    ] {
        put(&mut raw, &name, &no_mark).await;
        all_refused(&guard).await;
        let mut left = no_mark;
        left.sort();
        assert_eq!(stored(&mut raw, &name).await, left, "it was written over");
    }
    let mut command = redis::cmd("SET");
    let _: () = command
        .arg(&name)
        .arg("x")
        .query_async(&mut raw)
        .await
        .unwrap();
    all_refused(&guard).await;
    assert_eq!(guard.high_water("another").await.unwrap(), Token::ZERO);
}

async fn all_refused(guard: &RedisStore) {
    let token = owner(key()).token;
    let errors = [
        guard.admit("ledger", token, nonce()).await.err(),
        guard.raise_floor("ledger", token).await.err(),
        guard.high_water("ledger").await.err(),
    ];
    for error in errors {
        assert!(
            matches!(&error, Some(StoreError::Garbled { key_prefix, .. }) if key_prefix == "ledger"),
            "{error:?}"
        );
    }
}
