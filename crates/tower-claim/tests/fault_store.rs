//! The store that fails on command does what it says, and no more.
#![cfg(feature = "testing")]

use std::sync::Arc;
use std::time::Duration;

use tower_claim::store::{
    Beat, ClaimManyRequest, ClaimRequest, Claimed, ClaimedMany, Owner, Release, ReleaseRequest,
};
use tower_claim::testing::{Fault, FaultStore, ManualClock, Operation};
use tower_claim::{
    ClaimAdmin, ClaimMany, ClaimStore, Clock, Key, MemoryStore, Nonce, Settings, StoreError, Token,
};

const KEY: Key = Key::from_bytes([7; 32]);
const NONCE: Nonce = Nonce::from_bytes([1; 16]);

fn store() -> FaultStore<MemoryStore> {
    FaultStore::new(MemoryStore::new())
}

async fn claim(store: &impl ClaimStore, nonce: Nonce) -> Result<Claimed, StoreError> {
    let settings = Settings::new(Duration::from_secs(30));
    let request = ClaimRequest {
        key: KEY,
        nonce,
        fingerprint: None,
        settings: &settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(60)),
    };
    store.claim(request).await
}

fn giving_back(store: &impl ClaimStore) -> ReleaseRequest {
    ReleaseRequest {
        key: KEY,
        nonce: NONCE,
        token: None,
        not_after: store.now().saturating_add(Duration::from_secs(60)),
    }
}

#[tokio::test]
async fn down_refuses_and_never_reaches_the_engine() {
    let store = store();
    store.faults().set(Fault::Down);
    let refused = claim(&store, NONCE).await;
    assert!(
        matches!(refused, Err(StoreError::Unavailable(_))),
        "{refused:?}"
    );
    assert_eq!(store.inner().peek(KEY).await.unwrap(), None);
    store.faults().set(Fault::Ok);
    assert!(matches!(
        claim(&store, NONCE).await,
        Ok(Claimed::Granted(_))
    ));
}

#[tokio::test]
async fn a_lost_reply_was_applied_and_only_so_many_are_lost() {
    let store = store();
    store.faults().set(Fault::LoseReply(2));
    for _ in 0..2 {
        let lost = claim(&store, NONCE).await;
        assert!(matches!(lost, Err(StoreError::Ambiguous(_))), "{lost:?}");
    }
    assert_eq!(store.inner().peek(KEY).await.unwrap().unwrap().nonce, NONCE);
    assert!(matches!(
        claim(&store, NONCE).await,
        Ok(Claimed::Mine { .. })
    ));
    assert_eq!(store.faults().current(), Fault::Ok);
}

#[tokio::test]
async fn a_lost_watch_does_not_wait_for_the_hold_to_end() {
    let store = store();
    let Ok(Claimed::Granted(grant)) = claim(&store, NONCE).await else {
        panic!("a free key");
    };
    store.faults().set(Fault::LoseReply(1));
    let lost = store.watch(KEY, grant.token).await;
    assert!(matches!(lost, Err(StoreError::Ambiguous(_))), "{lost:?}");
}

#[tokio::test]
async fn a_delay_passes_on_the_clock_before_the_engine_is_asked() {
    let clock = ManualClock::new();
    let store = FaultStore::with_clock(MemoryStore::new(), Arc::new(clock.clone()));
    store.faults().set(Fault::Delay(Duration::from_secs(5)));
    let call = tokio::spawn({
        let store = store.clone();
        async move { claim(&store, NONCE).await }
    });
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        clock.next_wake(),
        Some(clock.now() + Duration::from_secs(5))
    );
    assert_eq!(
        store.inner().peek(KEY).await.unwrap(),
        None,
        "asked before the delay"
    );
    clock.advance(Duration::from_secs(5));
    assert!(matches!(call.await.unwrap(), Ok(Claimed::Granted(_))));
}

#[tokio::test]
async fn a_repeated_call_reaches_the_engine_twice_and_is_answered_by_the_first() {
    let engine = FaultStore::new(MemoryStore::new());
    let store = FaultStore::new(engine.clone());
    store.faults().set(Fault::Repeat(1));
    assert!(matches!(
        claim(&store, NONCE).await,
        Ok(Claimed::Granted(_))
    ));
    assert_eq!(engine.faults().calls().of(Operation::Claim), 2);
    assert_eq!(store.faults().calls().of(Operation::Claim), 1);
    assert_eq!(
        store.release(giving_back(&store)).await.unwrap(),
        Release::Released
    );
    assert_eq!(
        engine.faults().calls().of(Operation::Release),
        1,
        "one repeat was ordered"
    );
}

#[tokio::test]
async fn a_fault_can_meet_one_operation_only() {
    let store = store();
    store.faults().set_for(Operation::Release, Fault::Down);
    assert!(claim(&store, NONCE).await.is_ok());
    assert!(store.release(giving_back(&store)).await.is_err());
    store.faults().set(Fault::Ok);
    assert!(store.release(giving_back(&store)).await.is_ok());
}

#[tokio::test]
async fn every_operation_is_counted_by_its_name() {
    let store = store();
    let faults = store.faults();
    let Ok(Claimed::Granted(grant)) = claim(&store, NONCE).await else {
        panic!("a free key");
    };
    let owner = Owner {
        key: KEY,
        nonce: NONCE,
        token: grant.token,
    };
    store.renew(&[Beat { owner, progress: 0 }]).await.unwrap();
    let _ = store.mark(owner).await.unwrap();
    store.peek(KEY).await.unwrap();
    store.scan(None, 10).await.unwrap();
    store.ask_revoke(KEY, owner.token).await.unwrap();
    store.break_claim(KEY, owner.token).await.unwrap();
    store.purge(KEY, owner.token).await.unwrap();
    let calls = faults.reset_calls();
    for operation in [
        Operation::Claim,
        Operation::Renew,
        Operation::Mark,
        Operation::Peek,
        Operation::Scan,
        Operation::AskRevoke,
        Operation::BreakClaim,
        Operation::Purge,
    ] {
        assert_eq!(calls.of(operation), 1, "{operation:?}");
    }
    assert_eq!(calls.total(), 8);
    assert_eq!(faults.calls().total(), 0, "counted from zero again");
}

#[tokio::test]
async fn claims_of_several_keys_meet_faults_too() {
    let store = store();
    let settings = Settings::new(Duration::from_secs(30));
    let request = ClaimManyRequest {
        keys: &[KEY],
        nonce: NONCE,
        settings: &settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(60)),
    };
    store.faults().set(Fault::LoseReply(1));
    assert!(store.claim_many(request).await.unwrap_err().is_ambiguous());
    let again = store.claim_many(request).await.unwrap();
    assert!(
        matches!(
            again,
            ClaimedMany::Refused {
                by: Claimed::Mine { .. },
                ..
            }
        ),
        "{again:?}"
    );
    assert_eq!(store.faults().calls().of(Operation::ClaimMany), 2);
}

#[tokio::test]
async fn the_keepers_connection_has_the_same_faults() {
    let store = store();
    let keeper = store.keeper_store().await.unwrap();
    store.faults().set(Fault::Down);
    assert!(keeper.dyn_peek(KEY).await.is_err());
    assert_eq!(store.faults().calls().of(Operation::Peek), 1);
}
