//! Finish, release, the last clone, the point of no return.

use super::*;
use crate::store::{Finish, Release, Value};

fn value(text: &'static str) -> Value {
    Value::Kept(text.as_bytes().into())
}

#[tokio::test(start_paused = true)]
async fn check_is_false_from_the_moment_an_end_is_sent() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let finished = claim(&keeper, "a").await;
    store.next(Op::Finish, [Act::LoseCall]);
    let lost = tokio::spawn(finished.lost());
    let work = finished.finish(value("x"), LEASE);
    assert!(until_await(1, work).await.is_none());
    assert_eq!(finished.check(), Err(Loss::Ended));
    assert_eq!(lost.await.unwrap(), Loss::Ended);

    let released = claim(&keeper, "b").await;
    let lost = tokio::spawn(released.lost());
    store.next(Op::Release, [Act::LoseCall]);
    assert!(until_await(1, released.release()).await.is_none());
    assert_eq!(lost.await.unwrap(), Loss::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_finish_in_doubt_is_repeated_with_the_same_value() {
    for doubt in [
        Act::LoseReply,
        Act::LoseCall,
        Act::Ambiguous,
        Act::Unavailable,
    ] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        let claim = claim(&keeper, "a").await;
        store.next(Op::Finish, vec![doubt.clone(); 2]);
        let answer = claim.finish(value("x"), LEASE * 10).await;
        match doubt {
            // The caller waited its attempt timeout; the keeper goes on.
            Act::LoseReply | Act::LoseCall => assert!(answer.unwrap_err().is_ambiguous()),
            _ => assert_eq!(answer.unwrap(), Finish::Finished),
        }
        drop(claim);
        settled(&keeper).await;
        assert_eq!(store.value(key("a")), Some(value("x")), "{doubt:?}");
        assert!(
            store.sent(Op::Release).is_empty(),
            "never released after a finish"
        );
        assert_eq!(store.sent(Op::Finish).len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_finish_is_given_up_after_half_its_keep_and_after_one_lease() {
    for (keep, bound) in [(LEASE, LEASE / 2), (LEASE * 100, LEASE)] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        let claim = claim(&keeper, "a").await;
        store.always(Op::Finish, Act::Unavailable);
        assert!(claim.finish(value("x"), keep).await.is_err());
        settled(&keeper).await;
        let sent = store.sent(Op::Finish);
        let span = sent[sent.len() - 1].at - sent[0].at;
        assert!(span <= bound && span > bound / 2, "{span:?} of {bound:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finish_without_a_keep_is_sent_once() {
    // A repeat after the keep would find another's record and call it lost.
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim(&keeper, "a").await;
    store.always(Op::Finish, Act::Ambiguous);
    assert!(claim.finish(value("x"), Duration::ZERO).await.is_err());
    settled(&keeper).await;
    assert_eq!(store.sent(Op::Finish).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_finished_once() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim(&keeper, "a").await;
    let other = claim.clone();
    assert_eq!(
        claim.finish(value("x"), LEASE).await.unwrap(),
        Finish::Finished
    );
    assert!(other.finish(value("y"), LEASE).await.is_err());
    drop(claim);
    assert_eq!(other.release().await.unwrap(), HandBack::Nothing);
    settled(&keeper).await;
    assert_eq!(store.value(key("a")), Some(value("x")));
    assert_eq!(store.log().len(), 2, "a claim and a finish");
}

#[tokio::test(start_paused = true)]
async fn a_stale_owner_cannot_finish() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let off = Terms::builder(LEASE).renewal(Renewal::Off).build().unwrap();
    let late = claim_as(&keeper, "a", &off).await;
    tokio::time::sleep(LEASE).await;
    let next = claim(&keeper, "a").await;
    assert_eq!(
        late.finish(value("old"), LEASE).await.unwrap(),
        Finish::Lost
    );
    assert_eq!(
        next.finish(value("new"), LEASE).await.unwrap(),
        Finish::Finished
    );
}

#[tokio::test(start_paused = true)]
async fn the_token_decides_and_not_time() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let off = Terms::builder(LEASE).renewal(Renewal::Off).build().unwrap();
    let late = claim_as(&keeper, "a", &off).await;
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(late.check(), Err(Loss::Expired));
    assert_eq!(
        late.finish(value("late"), LEASE).await.unwrap(),
        Finish::Finished
    );
}

#[tokio::test(start_paused = true)]
async fn no_beat_is_sent_after_a_release_has_answered() {
    // redisson #7272; dynamodb-lock-client #116: a late beat revived a released lock.
    for under_way in [false, true] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        let claim = claim(&keeper, "a").await;
        if under_way {
            store.next(Op::Renew, [Act::Slow(LEASE / 20)]);
            while store.sent(Op::Renew).is_empty() {
                tokio::time::sleep(MS).await;
            }
        }
        let begun = tokio::time::Instant::now();
        claim.release().await.unwrap();
        let beats = store.sent(Op::Renew).len();
        assert_eq!(beats, usize::from(under_way));
        if under_way {
            assert!(begun.elapsed() > LEASE / 20, "waits for the beat under way");
        }
        tokio::time::sleep(LEASE * 3).await;
        assert_eq!(store.sent(Op::Renew).len(), beats);
        assert_eq!(store.sent(Op::Release).len(), 1);
        assert!(!store.is_held(key("a")));
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_claims_leave_nothing_behind() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    for _ in 0..10_000 {
        claim(&keeper, "a").await.release().await.unwrap();
    }
    assert!(
        format!("{keeper:?}").contains("holds: 0, jobs: 0"),
        "{keeper:?}"
    );
    tokio::time::sleep(LEASE * 2).await;
    assert!(store.sent(Op::Renew).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_to_go_releases() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let a = claim(&keeper, "a").await;
    let b = a.clone();
    drop(a);
    let c = b.clone();
    assert_eq!(b.release().await.unwrap(), HandBack::HeldByClone);
    settled(&keeper).await;
    assert!(store.is_held(key("a")));
    assert_eq!(c.check(), Ok(()));
    let lost = c.lost();
    drop(c);
    settled(&keeper).await;
    assert!(!store.is_held(key("a")));
    assert_eq!(lost.await, Loss::Ended);
    assert_eq!(store.sent(Op::Release).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_of_the_keeper_is_repeated_until_it_is_answered() {
    for doubt in [Act::Unavailable, Act::LoseCall, Act::LoseReply, Act::Panic] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        let claim = claim(&keeper, "a").await;
        store.next(Op::Release, vec![doubt.clone(); 2]);
        drop(claim);
        settled(&keeper).await;
        if !matches!(doubt, Act::Panic) {
            assert!(!store.is_held(key("a")), "{doubt:?}");
            assert_eq!(store.sent(Op::Release).len(), 3);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_in_doubt_is_taken_on_by_the_keeper() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim(&keeper, "a").await;
    store.next(Op::Release, [Act::LoseCall]);
    assert!(claim.release().await.unwrap_err().is_ambiguous());
    settled(&keeper).await;
    assert!(!store.is_held(key("a")));
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_is_not_released_when_it_is_dropped() {
    // Its work may still be running in a blocking thread: the lease lapses instead.
    let store = Scripted::new();
    let keeper = keeper(&store);
    let stalled = Terms::builder(LEASE)
        .renewal(Renewal::Progress { stall_after: LEASE })
        .build()
        .unwrap();
    let claim = claim_as(&keeper, "a", &stalled).await;
    assert_eq!(claim.lost().await, Loss::Stalled);
    drop(claim);
    settled(&keeper).await;
    assert!(store.sent(Op::Release).is_empty());
}

#[tokio::test(start_paused = true)]
async fn past_the_point_of_no_return_a_lapse_ends_nothing() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim(&keeper, "a").await;
    claim.point_of_no_return().await.unwrap();
    claim.point_of_no_return().await.unwrap();
    assert_eq!(store.sent(Op::Mark).len(), 1);
    store.always(Op::Renew, Act::LoseCall);
    tokio::time::sleep(LEASE * 3).await;
    assert!(is_busy(&keeper, "a").await, "nobody takes over");
    assert_eq!(claim.check(), Ok(()));
    assert_eq!(
        claim.finish(value("x"), LEASE).await.unwrap(),
        Finish::Finished
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_clear_yes_there_is_no_point_of_no_return() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let lost_call = claim(&keeper, "a").await;
    store.next(Op::Mark, [Act::LoseReply]);
    assert!(matches!(
        lost_call.point_of_no_return().await,
        Err(NoPointOfNoReturn::Store(e)) if e.is_ambiguous()
    ));
    drop(lost_call);

    let broken = claim(&keeper, "b").await;
    store.break_claim(key("b"));
    assert!(matches!(
        broken.point_of_no_return().await,
        Err(NoPointOfNoReturn::Lost(Loss::Stolen))
    ));
    assert_eq!(broken.check(), Err(Loss::Stolen));

    // A yes that comes when the owner was already told to stop.
    let late = claim(&keeper, "c").await;
    store.always(Op::Renew, Act::LoseCall);
    store.next(Op::Mark, [Act::Slow(LEASE / 15)]);
    tokio::time::sleep(late.remaining() - LEASE / 15).await;
    let watcher = tokio::spawn(late.lost());
    assert!(matches!(
        late.point_of_no_return().await,
        Err(NoPointOfNoReturn::Lost(Loss::StoreUnreachable))
    ));
    assert_eq!(watcher.await.unwrap(), Loss::StoreUnreachable);
}

#[tokio::test(start_paused = true)]
async fn a_forgetful_engine_has_no_point_of_no_return() {
    let mut store = Scripted::new();
    store.forgetful = true;
    let keeper = keeper(&store);
    let refused = claim(&keeper, "a").await;
    assert!(matches!(
        refused.point_of_no_return().await,
        Err(NoPointOfNoReturn::Forgetful { engine: "scripted" })
    ));
    assert!(store.sent(Op::Mark).is_empty(), "nothing was sent");
    assert_eq!(refused.check(), Ok(()));

    let trusting = Terms::builder(LEASE)
        .trust_forgetful_store()
        .build()
        .unwrap();
    let claim = claim_as(&keeper, "b", &trusting).await;
    claim.point_of_no_return().await.unwrap();
    assert_eq!(
        claim.release().await.unwrap(),
        HandBack::Answered(Release::Released)
    );
}

/// The last copy never arrived; one before it may have.
#[tokio::test(start_paused = true)]
async fn a_mark_is_in_doubt_when_any_copy_of_it_was() {
    for (first, in_doubt) in [(Act::Ambiguous, true), (Act::Unavailable, false)] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        let claim = claim(&keeper, "a").await;
        store.always(Op::Mark, Act::Unavailable);
        store.next(Op::Mark, [first]);
        match claim.point_of_no_return().await {
            Err(NoPointOfNoReturn::Store(error)) => {
                assert_eq!(error.is_ambiguous(), in_doubt, "{error:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(store.sent(Op::Mark).len() > 1);
    }
}
