//! A hold that an operator ends by force.

use std::time::Duration;

use tower_claim::store::{ClaimRequest, Claimed};
use tower_claim::{ClaimAdmin, MemoryStore, Settings, Token};

use super::{key, nonce, store};

/// The owner may be at work still.
async fn cools(store: &impl ClaimAdmin) {
    let key = key();
    let settings = Settings {
        cooling: Duration::from_secs(30),
        ..Settings::new(Duration::from_secs(20))
    };
    let ask = || ClaimRequest {
        key,
        nonce: nonce(),
        fingerprint: None,
        settings: &settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(2)),
    };
    let Claimed::Granted(grant) = store.claim(ask()).await.unwrap() else {
        panic!("a free key");
    };
    store.break_claim(key, grant.token).await.unwrap();
    let next = store.claim(ask()).await.unwrap();
    let Claimed::Cooling(cooling) = next else {
        panic!("{next:?}");
    };
    let left = cooling.remaining;
    assert!(
        (Duration::from_secs(25)..=settings.cooling).contains(&left),
        "from now on, not from the end of the lease: {left:?}"
    );
}

#[tokio::test]
async fn a_hold_that_is_broken_by_force_cools_as_after_a_crash() {
    cools(&MemoryStore::new()).await;
    cools(&store().await).await;
}
