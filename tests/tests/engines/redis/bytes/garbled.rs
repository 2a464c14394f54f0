//! What is no record of version 1: an error with the key's prefix, whatever lies there.

use std::time::Duration;

use tower_claim::store::{Beat, FinishRequest, Renewed, Value};
use tower_claim::{ClaimAdmin, ClaimStore, Key, Settings, StoreError};
use tower_claim_redis::RedisStore;

use super::{DONE, FREE, HELD, UNKNOWN, fields, owner, put};
use crate::redis::{ask, granted, key, raw, release_of, store};

/// Every call on this record; all must say that it is garbled, and name the key.
async fn all_garbled(store: &RedisStore, key: Key, what: &str) {
    let errors = calls(store, key).await;
    for (call, error) in errors {
        match error {
            Some(StoreError::Garbled { key_prefix, .. }) => assert_eq!(key_prefix, key.prefix()),
            other => panic!("{what}, {call}: {other:?}"),
        }
    }
}

async fn calls(store: &RedisStore, key: Key) -> Vec<(&'static str, Option<StoreError>)> {
    let settings = Settings::new(Duration::from_secs(20));
    let owner = owner(key);
    let finish = FinishRequest {
        owner,
        value: Value::Tombstone,
        keep: Duration::from_secs(1),
    };
    vec![
        ("claim", store.claim(ask(store, key, &settings)).await.err()),
        (
            "renew",
            store.renew(&[Beat { owner, progress: 0 }]).await.err(),
        ),
        ("mark", store.mark(owner).await.err()),
        ("finish", store.finish(finish).await.err()),
        (
            "release",
            store.release(release_of(store, owner)).await.err(),
        ),
        ("peek", store.peek(key).await.err()),
        ("break", store.break_claim(key, owner.token).await.err()),
        ("purge", store.purge(key, owner.token).await.err()),
        ("revoke", store.ask_revoke(key, owner.token).await.err()),
    ]
}

#[tokio::test]
async fn what_is_no_record_of_this_version_is_garbled_and_left_as_it_is() {
    let store = store().await;
    let mut raw = raw().await;
    let key = key();
    let name = store.name_of(&key);

    let mut future = fields(HELD);
    future[0].1 = b"2".to_vec();
    put(&mut raw, &name, &future).await;
    all_garbled(&store, key, "version 2").await;

    for missing in 0..fields(HELD).len() {
        // Options may be missing: the fingerprint, the mark, the wish.
        let mut cut = fields(HELD);
        let (gone, _) = cut.remove(missing);
        if ["fingerprint", "marked", "revoke_asked"].contains(&gone.as_str()) {
            continue;
        }
        put(&mut raw, &name, &cut).await;
        all_garbled(&store, key, &gone).await;
    }

    put(&mut raw, &name, &vec![("theirs".to_owned(), b"1".to_vec())]).await;
    all_garbled(&store, key, "a foreign hash").await;

    let _: () = redis::cmd("SET")
        .arg(&name)
        .arg("x")
        .query_async(&mut raw)
        .await
        .unwrap();
    all_garbled(&store, key, "a foreign type").await;
    let is: String = redis::cmd("GET")
        .arg(&name)
        .query_async(&mut raw)
        .await
        .unwrap();
    assert_eq!(is, "x", "nothing was written over it");

    // One that cannot be read takes no other beat with it.
    let good = granted(&store, crate::redis::key()).await;
    let beats = [owner(key), good].map(|owner| Beat { owner, progress: 0 });
    let answers = store.renew(&beats).await.unwrap();
    assert!(
        matches!(answers[..], [Renewed::Unsure, Renewed::Renewed { .. }]),
        "{answers:?}"
    );
    let page = store.scan(None, 100).await.unwrap();
    assert!(page.records.iter().any(|record| record.key == good.key));
}

/// A small generator: the same trials on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

#[tokio::test]
async fn no_bytes_make_a_script_fail() {
    let store = store().await;
    let mut raw = raw().await;
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let odd: [&[u8]; 12] = [
        b"",
        b"-1",
        b"nan",
        b"inf",
        b"1e999",
        b"0x10",
        b"9007199254740991",
        b"9007199254740992",
        b"99999999999999999999999",
        b"\xff\xfe\x00",
        b"held",
        b" 1",
    ];
    for _ in 0..400 {
        let golden = [HELD, DONE, UNKNOWN, FREE][dice.roll(4)];
        let mut record = fields(golden);
        for _ in 0..=dice.roll(3) {
            let at = dice.roll(record.len());
            match dice.roll(3) {
                0 if record.len() > 1 => drop(record.remove(at)),
                1 => record[at].1 = odd[dice.roll(odd.len())].to_vec(),
                _ => record[at].1 = (0..dice.roll(70)).map(|_| dice.roll(256) as u8).collect(),
            }
        }
        let key = key();
        put(&mut raw, &store.name_of(&key), &record).await;
        for (call, error) in calls(&store, key).await {
            let fine = matches!(
                error,
                None | Some(StoreError::Garbled { .. } | StoreError::Unsupported(_))
            );
            assert!(fine, "{call} on {record:?}: {error:?}");
        }
    }
}
