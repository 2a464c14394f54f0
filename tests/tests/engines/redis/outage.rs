//! Connections that are killed, and records that are gone.

use std::time::Duration;

use system_tests::servers::Redis;
use tower_claim::store::{Admission, Event, Promise};
use tower_claim::{Attempt, ClaimStore, FenceStore, Keeper, Terms, Token};
use tower_claim_redis::RedisStore;

use super::{key, nonce};

/// The keeper's among them.
#[tokio::test]
async fn a_hold_outlives_every_killed_connection() {
    let redis = Redis::start();
    let keeper = Keeper::new(RedisStore::connect(redis.url()).await.unwrap());
    let lease = Duration::from_millis(1500);
    let terms = Terms::builder(lease).build().unwrap();
    let Ok(Attempt::Granted(held)) = keeper.claim(key(), None, &terms, Token::ZERO).await else {
        panic!("a free key");
    };
    // Two leases: without a beat it would be over.
    for _ in 0..4 {
        let killed = redis.ask("CLIENT KILL TYPE normal SKIPME yes");
        assert!(killed.starts_with(':'), "{killed}");
        tokio::time::sleep(lease / 2).await;
        assert_eq!(held.check(), Ok(()));
    }
    held.release().await.unwrap();
}

/// The one way a token falls on a server whose clock is right; the guard sees it, and the owner heals.
#[tokio::test]
async fn a_token_that_a_floor_had_raised_falls_with_its_record_and_heals() {
    let mut redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let weakened = store.capabilities().weakened;
    assert!(weakened.may(Event::Restart, Promise::RisingTokens));
    // The guard keeps its marks elsewhere.
    let guards = super::store().await;
    let keeper = Keeper::new(store);
    let terms = Terms::builder(Duration::from_secs(20)).build().unwrap();
    let (work, floor) = (key(), Token::new(1 << 52).unwrap());
    let Ok(Attempt::Granted(old)) = keeper.claim(work, None, &terms, floor).await else {
        panic!("a free key");
    };
    let admit = async |token, nonce| guards.admit("ledger", token, nonce).await.unwrap();
    assert_eq!(admit(old.token(), nonce()).await, Admission::Admitted);
    redis.kill();
    redis.run();
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    let new = loop {
        match keeper.claim(work, None, &terms, Token::ZERO).await {
            Ok(Attempt::Granted(new)) => break new,
            other => assert!(tokio::time::Instant::now() < until, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(new.token() < old.token(), "else the name would be a lie");
    let stale = admit(new.token(), nonce()).await;
    assert_eq!(stale, Admission::Stale { high: old.token() });
    let Ok(Attempt::Granted(healed)) = keeper.heal(new, old.token()).await else {
        panic!("it heals");
    };
    assert_eq!(admit(healed.token(), nonce()).await, Admission::Admitted);
}
