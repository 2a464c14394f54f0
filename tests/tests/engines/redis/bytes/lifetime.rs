//! When a record goes by itself.

use std::time::Duration;

use tower_claim::store::{Beat, StoreTime};
use tower_claim::{ClaimStore, Key, Settings};

use crate::redis::{granted, granted_for, key, raw, release_of, store};

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
    let held = granted_for(&store, key(), &settings).await;
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
        (1..=20_100).contains(&left),
        "a free record goes after its not_after: {left} ms"
    );
    let for_good = granted(&store, key()).await;
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
