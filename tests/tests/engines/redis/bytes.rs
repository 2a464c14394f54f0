//! What lies in Redis: golden hashes of format version 1, and what is no record of ours.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tower_claim::store::{
    Beat, ClaimRequest, Claimed, Finish, FinishRequest, Marked, Owner, Release, Renewed, State,
    StoreTime, Value,
};
use tower_claim::{
    ClaimAdmin, ClaimStore, FenceStore, Fingerprint, Key, LapsePolicy, Nonce, Settings, StoreError,
    Token,
};
use tower_claim_redis::RedisStore;

use super::{ask, key, raw, release_of, store};

const HELD: &str = include_str!("golden/held.txt");
const DONE: &str = include_str!("golden/done.txt");
const UNKNOWN: &str = include_str!("golden/unknown.txt");
const FREE: &str = include_str!("golden/free.txt");

type Fields = Vec<(String, Vec<u8>)>;

fn fields(golden: &str) -> Fields {
    let pairs = golden.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
        .collect()
}

async fn put(raw: &mut MultiplexedConnection, name: &str, fields: &Fields) {
    let _: () = redis::cmd("DEL").arg(name).query_async(raw).await.unwrap();
    let mut command = redis::cmd("HSET");
    command.arg(name);
    for (field, value) in fields {
        command.arg(field).arg(&value[..]);
    }
    let _: () = command.query_async(raw).await.unwrap();
}

/// A key with this record.
async fn with(store: &RedisStore, golden: &str) -> Key {
    let key = key();
    put(&mut raw().await, &store.name_of(&key), &fields(golden)).await;
    key
}

fn owner(key: Key) -> Owner {
    Owner {
        key,
        nonce: Nonce::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
        token: Token::new(1_810_000_000_000_000).unwrap(),
    }
}

const PRINT: Fingerprint = Fingerprint::from_bytes([0x20; 32]);

async fn ask_with_print(store: &RedisStore, key: Key) -> Claimed {
    let settings = Settings::new(Duration::from_secs(20));
    let request = ClaimRequest {
        fingerprint: Some(PRINT),
        ..ask(store, key, &settings)
    };
    store.claim(request).await.unwrap()
}

#[tokio::test]
async fn a_held_record_of_version_1_is_read() {
    let store = store().await;
    let key = with(&store, HELD).await;
    let view = store.peek(key).await.unwrap().unwrap();
    assert_eq!(view.state, State::Held);
    assert_eq!(
        (view.token, view.nonce),
        (owner(key).token, owner(key).nonce)
    );
    assert_eq!(view.fingerprint, Some(PRINT));
    assert_eq!(
        (&*view.label, view.progress, view.marked),
        ("payments", u64::MAX, true)
    );
    let busy = ask_with_print(&store, key).await;
    assert!(
        matches!(busy, Claimed::Busy(busy) if busy.same_fingerprint && &*busy.label == "payments")
    );
    let beat = Beat {
        owner: owner(key),
        progress: 5,
    };
    let renewed = store.renew(&[beat]).await.unwrap();
    assert!(
        matches!(
            renewed[..],
            [Renewed::Renewed {
                revoke_asked: true,
                ..
            }]
        ),
        "{renewed:?}"
    );
    let progress = store.peek(key).await.unwrap().unwrap().progress;
    assert_eq!(progress, u64::MAX, "progress never falls");
}

#[tokio::test]
async fn a_done_record_of_version_1_is_replayed() {
    let store = store().await;
    let key = with(&store, DONE).await;
    let done = ask_with_print(&store, key).await;
    let Claimed::Done(done) = done else {
        panic!("{done:?}")
    };
    assert!(done.same_fingerprint);
    assert_eq!(done.value, Value::Kept("receipt".into()));
}

#[tokio::test]
async fn an_unknown_record_of_version_1_stays_unknown() {
    let store = store().await;
    let key = with(&store, UNKNOWN).await;
    let unknown = ask_with_print(&store, key).await;
    assert!(matches!(unknown, Claimed::Unknown(unknown) if unknown.token == owner(key).token));
}

#[tokio::test]
async fn a_free_record_of_version_1_refuses_its_nonces() {
    let store = store().await;
    let key = with(&store, FREE).await;
    let settings = Settings::new(Duration::from_secs(20));
    for nonce in [owner(key).nonce, Nonce::from_bytes([0xff; 16])] {
        let request = ClaimRequest {
            nonce,
            ..ask(&store, key, &settings)
        };
        assert_eq!(store.claim(request).await.unwrap(), Claimed::Ended);
    }
    let granted = store.claim(ask(&store, key, &settings)).await.unwrap();
    assert!(matches!(granted, Claimed::Granted(grant) if grant.token > owner(key).token));
}

/// A field that is added, renamed or dropped is another version.
#[tokio::test]
async fn what_is_written_has_the_fields_of_version_1() {
    let store = store().await;
    let mut raw = raw().await;
    let mut same = async |key: &Key, golden: &str, but: &[&str]| {
        let mut is: Vec<String> = redis::cmd("HKEYS")
            .arg(store.name_of(key))
            .query_async(&mut raw)
            .await
            .unwrap();
        let mut was: Vec<String> = fields(golden).into_iter().map(|(name, _)| name).collect();
        was.retain(|name| !but.contains(&name.as_str()) && !name.starts_with("spent"));
        is.sort_unstable();
        was.sort_unstable();
        assert_eq!(is, was);
    };
    let mut settings = Settings::new(Duration::from_secs(20));
    settings.on_lapse = LapsePolicy::Hold;
    settings.min_hold = Duration::from_secs(30);
    let hold = async || {
        let request = ClaimRequest {
            fingerprint: Some(PRINT),
            ..ask(&store, key(), &settings)
        };
        match store.claim(request).await.unwrap() {
            Claimed::Granted(grant) => Owner {
                key: request.key,
                nonce: request.nonce,
                token: grant.token,
            },
            other => panic!("{other:?}"),
        }
    };
    let held = hold().await;
    assert_eq!(store.mark(held).await.unwrap(), Marked::Marked);
    assert!(store.ask_revoke(held.key, held.token).await.unwrap());
    same(&held.key, HELD, &[]).await;
    assert_eq!(
        store.release(release_of(&store, held)).await.unwrap(),
        Release::Released
    );
    same(&held.key, UNKNOWN, &[]).await;
    let done = hold().await;
    let value = Value::Kept("receipt".into());
    let request = FinishRequest {
        owner: done,
        value,
        keep: Duration::from_secs(60),
    };
    assert_eq!(store.finish(request).await.unwrap(), Finish::Finished);
    same(&done.key, DONE, &[]).await;
    let free = hold().await;
    assert_eq!(
        store.release(release_of(&store, free)).await.unwrap(),
        Release::Released
    );
    same(&free.key, FREE, &[]).await;
}

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
    let good = super::granted(&store, super::key()).await;
    let beats = [owner(key), good].map(|owner| Beat { owner, progress: 0 });
    let answers = store.renew(&beats).await.unwrap();
    assert!(
        matches!(answers[..], [Renewed::Unsure, Renewed::Renewed { .. }]),
        "{answers:?}"
    );
    let page = store.scan(None, 100).await.unwrap();
    assert!(page.records.iter().any(|record| record.key == good.key));
}

#[tokio::test]
async fn a_garbled_mark_of_a_guard_is_an_error() {
    let (store, prefix) = (store().await, super::fresh());
    let store_of = RedisStore::builder()
        .url(super::server().url())
        .prefix(&prefix);
    let guard = store_of.connect().await.unwrap();
    let mut raw = raw().await;
    let name = format!("{prefix}fence:ledger");
    for fields in [
        vec![
            ("v".to_owned(), b"2".to_vec()),
            ("high".to_owned(), b"7".to_vec()),
        ],
        vec![
            ("v".to_owned(), b"1".to_vec()),
            ("high".to_owned(), b"-7".to_vec()),
        ],
        vec![("theirs".to_owned(), b"1".to_vec())],
    ] {
        put(&mut raw, &name, &fields).await;
        let answer = guard
            .admit("ledger", owner(key()).token, super::nonce())
            .await;
        assert!(
            matches!(answer, Err(StoreError::Garbled { .. })),
            "{answer:?}"
        );
    }
    assert_eq!(store.high_water("ledger").await.unwrap(), Token::ZERO);
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

#[tokio::test]
async fn what_says_nothing_any_more_goes_by_itself_and_what_is_live_stays() {
    let store = store().await;
    let mut raw = raw().await;
    let mut ttl = async |key: &Key| -> i64 {
        redis::cmd("PTTL")
            .arg(store.name_of(key))
            .query_async(&mut raw)
            .await
            .unwrap()
    };
    let mut settings = Settings::new(Duration::from_secs(5));
    settings.unfinished_keep = Duration::from_secs(60);
    let held = super::granted_for(&store, key(), &settings).await;
    let day = 24 * 3600 * 1000;
    assert!(
        ttl(&held.key).await > day + 60_000,
        "a hold lasts past lease and unfinished keep"
    );
    let _ = store
        .renew(&[Beat {
            owner: held,
            progress: 0,
        }])
        .await
        .unwrap();
    assert!(
        ttl(&held.key).await > day + 60_000,
        "and a renewal pushes that"
    );
    let _ = store.release(release_of(&store, held)).await.unwrap();
    let left = ttl(&held.key).await;
    assert!(
        (1..=2100).contains(&left),
        "a free record goes after its not_after: {left} ms"
    );
    let for_good = super::granted(&store, key()).await;
    let release = tower_claim::store::ReleaseRequest {
        not_after: StoreTime::NEVER,
        ..release_of(&store, for_good)
    };
    let _ = store.release(release).await.unwrap();
    assert_eq!(
        ttl(&for_good.key).await,
        -1,
        "a nonce without a not_after is never forgotten"
    );
}
