//! The token of a grant, to the last digit.

use std::time::{Duration, Instant};

use tower_claim::store::{ClaimRequest, Claimed, ReleaseRequest};
use tower_claim::{ClaimStore, Key, Settings, Token};

use super::{key, nonce};

const HOUR_MS: u64 = 3_600_000;

/// The greatest of: one above the last, the store's milliseconds times 1,024, one above the floor. `store_ms` is the
/// store's own clock.
pub async fn tokens_follow_their_rule<S: ClaimStore>(store: &S, store_ms: impl AsyncFn() -> u64) {
    let by_the_clock = async |key: Key, floor: u64| {
        let before = store_ms().await;
        let token = granted_and_released(store, key, floor).await;
        let after = store_ms().await;
        assert_eq!(token % 1024, 0, "{token} is no millisecond's first");
        assert!(
            (before..=after).contains(&(token / 1024)),
            "{token} is not of {before}..={after} ms"
        );
        token
    };
    let known = key();
    let first = by_the_clock(known, 0).await;
    let end = Instant::now() + Duration::from_secs(10);
    while store_ms().await <= first / 1024 {
        assert!(Instant::now() < end, "the store's clock stands");
    }
    by_the_clock(known, first - 1).await;
    by_the_clock(key(), first - 1).await;

    // A floor an hour ahead of the clock; from then on the last token is.
    let ahead = (store_ms().await + HOUR_MS) * 1024 + 7;
    let key = key();
    for (floor, token) in [
        (ahead, ahead + 1),
        (0, ahead + 2),
        (ahead - 9, ahead + 3),
        (ahead + 2, ahead + 4),
        (ahead + 4, ahead + 5),
        (ahead + 5_000, ahead + 5_001),
    ] {
        let is = granted_and_released(store, key, floor).await;
        assert_eq!(is, token, "floor {floor}");
    }
}

async fn granted_and_released<S: ClaimStore>(store: &S, key: Key, floor: u64) -> u64 {
    let settings = Settings::new(Duration::from_secs(60));
    let not_after = store.now().saturating_add(Duration::from_secs(60));
    let request = ClaimRequest {
        key,
        nonce: nonce(),
        fingerprint: None,
        settings: &settings,
        floor: Token::new(floor).expect("below 2^53"),
        not_after,
    };
    let Ok(Claimed::Granted(grant)) = store.claim(request).await else {
        panic!("a free key is not granted");
    };
    let release = ReleaseRequest {
        key,
        nonce: request.nonce,
        token: Some(grant.token),
        not_after,
    };
    store.release(release).await.expect("an answer");
    grant.token.get()
}
