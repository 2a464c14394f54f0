//! What an operator has purged is gone from the hash.

use std::time::Duration;

use tower_claim::store::{
    ClaimRequest, Claimed, Finish, FinishRequest, Owner, Purged, State, Value,
};
use tower_claim::{ClaimAdmin, ClaimStore, Fingerprint, Key, Settings};
use tower_claim_redis::RedisStore;

use crate::redis::{ask, key, raw, store};

const PRINT: Fingerprint = Fingerprint::from_bytes([0x20; 32]);

/// A key with a result that tells of somebody.
async fn done(store: &RedisStore, keep: Duration) -> Owner {
    let mut settings = Settings::new(Duration::from_secs(20));
    settings.label = "payments".into();
    let key = key();
    let request = ClaimRequest {
        fingerprint: Some(PRINT),
        ..ask(store, key, &settings)
    };
    let owner = match store.claim(request).await {
        Ok(Claimed::Granted(grant)) => Owner {
            key,
            nonce: request.nonce,
            token: grant.token,
        },
        other => panic!("no grant: {other:?}"),
    };
    let finish = FinishRequest {
        owner,
        value: Value::Kept("Ada Lovelace".into()),
        keep,
    };
    assert_eq!(store.finish(finish).await.unwrap(), Finish::Finished);
    owner
}

/// The names of its fields, and all of them as one text.
async fn hash(store: &RedisStore, key: &Key) -> (Vec<String>, String) {
    let fields: Vec<(String, Vec<u8>)> = redis::cmd("HGETALL")
        .arg(store.name_of(key))
        .query_async(&mut raw().await)
        .await
        .unwrap();
    let text = fields
        .iter()
        .map(|(name, value)| format!("{name} {}\n", String::from_utf8_lossy(value)));
    (
        fields.iter().map(|(name, _)| name.clone()).collect(),
        text.clone().collect(),
    )
}

async fn nothing_of_it_is_left(store: &RedisStore, key: &Key) {
    let (names, text) = hash(store, key).await;
    for gone in ["value", "fingerprint", "label", "not_before"] {
        assert!(!names.iter().any(|name| name == gone), "{text}");
    }
    for told in ["Ada", &"20".repeat(32), "payments"] {
        assert!(!text.contains(told), "{text}");
    }
    // What a late copy of the claim meets.
    for kept in ["state", "token", "nonce", "not_after"] {
        assert!(names.iter().any(|name| name == kept), "{text}");
    }
}

#[tokio::test]
async fn a_purge_leaves_nothing_of_the_result_in_redis() {
    let store = store().await;
    let owner = done(&store, Duration::from_secs(60)).await;
    let (names, text) = hash(&store, &owner.key).await;
    assert!(text.contains("Ada") && names.iter().any(|name| name == "value"));
    let purged = store.purge(owner.key, owner.token).await.unwrap();
    assert!(matches!(purged, Purged::Purged { .. }), "{purged:?}");
    nothing_of_it_is_left(&store, &owner.key).await;
}

/// The hash stays until no copy of the claim may arrive.
#[tokio::test]
async fn a_purge_past_the_keep_leaves_nothing_of_the_result_in_redis_either() {
    let store = store().await;
    let owner = done(&store, Duration::from_millis(1)).await;
    while store.peek(owner.key).await.unwrap().unwrap().state != State::Free {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (_, text) = hash(&store, &owner.key).await;
    assert!(text.contains("Ada"), "nobody has touched it");
    let purged = store.purge(owner.key, owner.token).await.unwrap();
    assert_eq!(purged, Purged::Absent);
    nothing_of_it_is_left(&store, &owner.key).await;
}
