//! A circuit breaker before a store that does not answer.

use tokio::time::Instant;

use super::*;

const PAUSE: Duration = Duration::from_secs(5);

fn keeper_with_breaker(store: &Scripted, failures: u32) -> Keeper {
    Keeper::builder_many(store.clone())
        .clock(store.clock.clone())
        .run_on(RunOn::Task)
        .circuit_breaker(failures, PAUSE)
        .build()
        .unwrap()
}

async fn fails(keeper: &Keeper, name: &str) -> Duration {
    let begun = Instant::now();
    let answer = keeper.claim(key(name), None, &terms(), Token::ZERO).await;
    assert!(answer.is_err(), "{answer:?}");
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_costs_so_many_claims_their_wait_and_no_more() {
    let store = Scripted::new();
    store.always(Op::Claim, Act::LoseCall);
    let keeper = keeper_with_breaker(&store, 2);
    for name in ["a", "b"] {
        assert!(fails(&keeper, name).await >= terms().attempt_timeout());
    }
    let sent = store.sent(Op::Claim).len();
    for _ in 0..1000 {
        assert_eq!(fails(&keeper, "c").await, Duration::ZERO);
    }
    let many = [key("c"), key("d")];
    let refused = keeper.claim_many(&many, &terms(), Token::ZERO).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))));
    assert_eq!(store.sent(Op::Claim).len(), sent, "none was sent");
}

#[tokio::test(start_paused = true)]
async fn after_the_pause_one_claim_tries_and_the_store_is_asked_again() {
    let store = Scripted::new();
    store.always(Op::Claim, Act::Unavailable);
    let keeper = keeper_with_breaker(&store, 1);
    fails(&keeper, "a").await;
    tokio::time::sleep(PAUSE).await;
    store.always(Op::Claim, Act::Pass);
    store.next(Op::Claim, [Act::Slow(MS)]);
    let terms = terms();
    let (trial, meanwhile) = tokio::join!(
        keeper.claim(key("a"), None, &terms, Token::ZERO),
        keeper.claim(key("b"), None, &terms, Token::ZERO),
    );
    assert!(matches!(trial, Ok(Attempt::Granted(_))), "{trial:?}");
    assert!(matches!(meanwhile, Err(StoreError::Unavailable(_))));
    claim(&keeper, "b").await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_renewed_finished_and_released_while_claims_are_held_back() {
    let store = Scripted::new();
    let keeper = keeper_with_breaker(&store, 1);
    let finished = claim(&keeper, "a").await;
    let released = claim(&keeper, "b").await;
    store.always(Op::Claim, Act::Unavailable);
    fails(&keeper, "c").await;
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(finished.check(), Ok(()));
    let value = crate::store::Value::Tombstone;
    let told = finished.finish(value.clone(), LEASE * 10).await;
    assert!(matches!(told, Ok(crate::store::Finish::Finished)));
    released.release().await.unwrap();
    assert_eq!(store.value(key("a")), Some(value));
    assert!(!store.is_held(key("b")));
}

#[test]
fn a_breaker_that_would_never_ask_or_never_hold_back_is_refused() {
    for (failures, pause) in [(0, PAUSE), (1, Duration::ZERO)] {
        let refused = Keeper::builder(crate::MemoryStore::new())
            .circuit_breaker(failures, pause)
            .build();
        assert_eq!(refused.unwrap_err().setting(), "circuit_breaker");
    }
}
