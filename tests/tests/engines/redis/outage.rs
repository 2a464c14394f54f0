//! Connections that are killed, and records that are gone.

use std::time::Duration;

use system_tests::servers::{MovedClock, Redis};
use tower_claim::store::{Admission, Beat, ClaimRequest, Claimed, Event, Promise, Renewed};
use tower_claim::{Attempt, ClaimStore, FenceStore, Keeper, Settings, Terms, Token};
use tower_claim_redis::RedisStore;

use super::{ask, granted, key, nonce};

/// The keeper's among them.
#[tokio::test]
async fn a_hold_outlives_every_killed_connection() {
    let redis = Redis::start();
    let keeper = Keeper::new(RedisStore::connect(redis.url()).await.unwrap());
    let lease = Duration::from_secs(4);
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

/// Such a beat counts from an earlier now: it must not take back what was promised.
#[tokio::test]
async fn a_beat_while_the_clock_is_back_shortens_no_hold() {
    let clock = MovedClock::new();
    let redis = Redis::under(&clock);
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let owner = granted(&store, key()).await;
    let move_to = async |offset: i64| {
        clock.set(offset);
        let here = std::time::SystemTime::now();
        let here = here.duration_since(std::time::UNIX_EPOCH).unwrap();
        let wanted = i64::try_from(here.as_secs()).unwrap() + offset;
        let until = tokio::time::Instant::now() + Duration::from_secs(30);
        let told = || redis.ask("TIME").lines().nth(2).unwrap().parse::<i64>();
        while told().unwrap().abs_diff(wanted) > 11 {
            assert!(tokio::time::Instant::now() < until, "the clock stays");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    move_to(-3600).await;
    let renewed = store.renew(&[Beat { owner, progress: 1 }]).await.unwrap();
    assert!(matches!(renewed[..], [Renewed::Renewed { .. }]));
    move_to(0).await;
    let settings = Settings::new(Duration::from_secs(20));
    let request = ClaimRequest {
        // The store has still to hear that the clock is back.
        not_after: store.now().saturating_add(Duration::from_secs(7200)),
        ..ask(&store, owner.key, &settings)
    };
    let other = store.claim(request).await.unwrap();
    assert!(
        matches!(&other, Claimed::Busy(busy) if busy.token == owner.token),
        "{other:?}"
    );
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
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
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
