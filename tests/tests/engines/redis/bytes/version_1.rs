//! Records of version 1 are read as they were meant, and written so.

use std::time::Duration;

use tower_claim::store::{
    Beat, ClaimRequest, Claimed, Finish, FinishRequest, Marked, Owner, Release, Renewed, State,
    Value,
};
use tower_claim::{ClaimAdmin, ClaimStore, Fingerprint, Key, LapsePolicy, Nonce, Settings};
use tower_claim_redis::RedisStore;

use super::{DONE, FREE, HELD, UNKNOWN, fields, owner, with};
use crate::redis::{ask, key, raw, release_of, store};

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
    let mut same = async |key: &Key, golden: &str, and: &[&str]| {
        let mut is: Vec<String> = redis::cmd("HKEYS")
            .arg(store.name_of(key))
            .query_async(&mut raw)
            .await
            .unwrap();
        let mut was: Vec<String> = fields(golden).into_iter().map(|(name, _)| name).collect();
        was.retain(|name| !name.starts_with("spent"));
        was.extend(and.iter().map(|name| (*name).to_owned()));
        is.sort_unstable();
        was.sort_unstable();
        assert_eq!(is, was);
    };
    let mut settings = Settings::new(Duration::from_secs(20));
    settings.on_lapse = LapsePolicy::Hold;
    settings.min_hold = Duration::from_secs(30);
    let brief = Settings {
        min_hold: Duration::ZERO,
        ..settings.clone()
    };
    let hold_for = async |settings: &Settings| {
        let request = ClaimRequest {
            fingerprint: Some(PRINT),
            ..ask(&store, key(), settings)
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
    let hold = async || hold_for(&settings).await;
    let held = hold().await;
    assert_eq!(store.mark(held).await.unwrap(), Marked::Marked);
    assert!(store.ask_revoke(held.key, held.token).await.unwrap());
    same(&held.key, HELD, &[]).await;
    assert_eq!(
        store.release(release_of(&store, held)).await.unwrap(),
        Release::Released
    );
    same(&held.key, UNKNOWN, &[]).await;
    // Where the key is to stay taken, that is told beside the result.
    for (settings, and) in [(&brief, &[][..]), (&settings, &["not_before"])] {
        let done = hold_for(settings).await;
        let request = FinishRequest {
            owner: done,
            value: Value::Kept("receipt".into()),
            keep: Duration::from_secs(60),
        };
        assert_eq!(store.finish(request).await.unwrap(), Finish::Finished);
        same(&done.key, DONE, and).await;
    }
    let free = hold().await;
    assert_eq!(
        store.release(release_of(&store, free)).await.unwrap(),
        Release::Released
    );
    same(&free.key, FREE, &[]).await;
}
