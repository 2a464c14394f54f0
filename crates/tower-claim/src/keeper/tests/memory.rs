//! The keeper over the in-memory store: the whole story, once.

use super::*;
use crate::store::{Finish, Value};
use crate::{LapsePolicy, MemoryStore};

fn paused() -> (MemoryStore, Keeper) {
    let clock: Arc<dyn Clock> = Arc::new(crate::TokioClock::new());
    let store = MemoryStore::builder()
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let keeper = Keeper::builder_many(store.clone())
        .clock(clock)
        .run_on(RunOn::Task)
        .build()
        .unwrap();
    (store, keeper)
}

#[tokio::test(start_paused = true)]
async fn the_same_thread_is_busy_and_a_finished_key_is_done() {
    let (_, keeper) = paused();
    let first = claim(&keeper, "class 7").await;
    assert_eq!(first.attempt(), 1);
    assert!(is_busy(&keeper, "class 7").await);
    tokio::time::sleep(LEASE * 5).await;
    assert_eq!(first.check(), Ok(()));
    assert!(is_busy(&keeper, "class 7").await);
    let sent = Value::Kept("sent".into());
    let answer = first.finish(sent.clone(), LEASE * 10).await;
    assert_eq!(answer.unwrap(), Finish::Finished);
    let terms = terms();
    let again = keeper.claim(key("class 7"), None, &terms, Token::ZERO);
    assert!(matches!(again.await, Ok(Attempt::Done(done)) if done.value == sent));
}

#[tokio::test(start_paused = true)]
async fn who_takes_over_learns_of_the_one_before() {
    let (_, keeper) = paused();
    let stalled = Terms::builder(LEASE)
        .renewal(Renewal::Progress { stall_after: LEASE })
        .build()
        .unwrap();
    let hung = claim_as(&keeper, "a", &stalled).await;
    hung.progress(41);
    assert_eq!(hung.lost().await, Loss::Stalled);
    tokio::time::sleep(LEASE).await;
    let next = claim_as(&keeper, "a", &stalled).await;
    let before = next.took_over().unwrap();
    assert_eq!((before.token, before.progress), (hung.token(), 41));
    assert_eq!(next.attempt(), 2);
    assert!(next.token() > hung.token());
    let late = hung.finish(Value::Tombstone, LEASE).await;
    assert_eq!(late.unwrap(), Finish::Lost);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_claim_lapses_as_after_a_crash() {
    let (_, keeper) = paused();
    let clone = claim(&keeper, "a").await;
    let token = clone.token();
    let lost = tokio::spawn(clone.lost());
    clone.clone().abandon();
    assert_eq!(lost.await.unwrap(), Loss::Ended);
    assert_eq!(clone.check(), Err(Loss::Ended));
    // Neither its clones nor its drop give it back.
    assert_eq!(clone.release().await.unwrap(), HandBack::Nothing);
    settled(&keeper).await;
    assert!(is_busy(&keeper, "a").await);
    tokio::time::sleep(LEASE).await;
    let next = claim(&keeper, "a").await;
    assert_eq!(next.attempt(), 2);
    assert_eq!(next.took_over().unwrap().token, token);

    let hold = Terms::builder(LEASE).on_lapse(LapsePolicy::Hold).build();
    let hold = hold.unwrap();
    claim_as(&keeper, "b", &hold).await.abandon();
    tokio::time::sleep(LEASE).await;
    let again = keeper.claim(key("b"), None, &hold, Token::ZERO).await;
    assert!(matches!(again, Ok(Attempt::Unknown(_))), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_sent_is_not_abandoned() {
    let (_, keeper) = paused();
    let claim = claim(&keeper, "a").await;
    let finished = claim.finish(Value::Tombstone, LEASE).await;
    assert_eq!(finished.unwrap(), Finish::Finished);
    claim.abandon();
    let terms = terms();
    let again = keeper.claim(key("a"), None, &terms, Token::ZERO).await;
    assert!(matches!(again, Ok(Attempt::Done(_))), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_claim_future_leaves_the_key_free() {
    let (_, keeper) = paused();
    for _ in 0..100 {
        let terms = terms();
        drop(keeper.claim(key("a"), None, &terms, Token::ZERO));
        let _ = until_await(1, keeper.claim(key("a"), None, &terms, Token::ZERO)).await;
        settled(&keeper).await;
        claim(&keeper, "a").await.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_marked_claim_that_is_dropped_is_unknown() {
    let (_, keeper) = paused();
    let marked = claim(&keeper, "a").await;
    marked.point_of_no_return().await.unwrap();
    drop(marked);
    settled(&keeper).await;
    let next = keeper.claim(key("a"), None, &terms(), Token::ZERO).await;
    assert!(matches!(next, Ok(Attempt::Unknown(_))), "{next:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_hold_is_unknown_to_others_and_may_be_finished() {
    let (_, keeper) = paused();
    let hold = Terms::builder(LEASE)
        .renewal(Renewal::Off)
        .on_lapse(LapsePolicy::Hold)
        .build()
        .unwrap();
    let slow = claim_as(&keeper, "a", &hold).await;
    tokio::time::sleep(LEASE * 3).await;
    let other = keeper.claim(key("a"), None, &hold, Token::ZERO).await;
    assert!(matches!(other, Ok(Attempt::Unknown(_))), "{other:?}");
    assert_eq!(slow.check(), Ok(()));
    let answer = slow.finish(Value::Tombstone, LEASE).await;
    assert_eq!(answer.unwrap(), Finish::Finished);
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_kept_and_given_back_together() {
    let (_, keeper) = paused();
    let keys = [key("a"), key("b"), key("c")];
    let AttemptMany::Granted(all) = keeper
        .claim_many(&keys, &terms(), Token::ZERO)
        .await
        .unwrap()
    else {
        panic!("not granted");
    };
    tokio::time::sleep(LEASE * 4).await;
    assert_eq!(all.check(), Ok(()));
    for name in ["a", "b", "c"] {
        assert!(is_busy(&keeper, name).await);
    }
    all.release().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(!is_busy(&keeper, name).await);
    }
}

#[tokio::test]
async fn a_hold_survives_a_blocked_runtime() {
    let keeper = Keeper::new(MemoryStore::new());
    // A third of it is long for a busy machine.
    let lease = Duration::from_secs(5);
    let terms = Terms::builder(lease).build().unwrap();
    let claim = claim_as(&keeper, "a", &terms).await;
    std::thread::sleep(lease + MS * 500);
    assert_eq!(claim.check(), Ok(()));
    assert!(is_busy(&keeper, "a").await);
}

#[tokio::test(start_paused = true)]
async fn a_key_claimed_over_and_over_is_never_closed() {
    let (_, keeper) = paused();
    for _ in 0..3_000 {
        claim(&keeper, "a").await.release().await.unwrap();
        tokio::time::sleep(MS).await;
    }
}
