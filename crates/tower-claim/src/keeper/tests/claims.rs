//! Claiming: repeated, late, lost and unwanted answers.

use super::*;
use crate::store::{Claimed, Release};

#[tokio::test(start_paused = true)]
async fn a_second_claim_from_the_same_thread_is_busy() {
    // A re-entrant lock keyed by thread let one announcement out many times (redisson #5033).
    let store = Scripted::new();
    let keeper = keeper(&store);
    let first = claim(&keeper, "class 7").await;
    assert!(is_busy(&keeper, "class 7").await, "nested");
    let other_task = tokio::spawn({
        let keeper = keeper.clone();
        async move { is_busy(&keeper, "class 7").await }
    });
    assert!(other_task.await.unwrap(), "another task of the same thread");
    first.release().await.unwrap();
    assert!(!is_busy(&keeper, "class 7").await);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_claim_is_one_grant_that_one_release_frees() {
    // redisson #7367: the repeat counted as a re-entry, one unlock left it locked.
    for lost in [Act::LoseReply, Act::Ambiguous] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        store.next(Op::Claim, [lost]);
        let claim = claim(&keeper, "a").await;
        let sent = store.sent(Op::Claim);
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0].nonce, sent[1].nonce, "repeated with the same nonce");
        assert_eq!(claim.attempt(), 1, "the second answer told it again");
        assert_eq!(
            claim.release().await.unwrap(),
            HandBack::Answered(Release::Released)
        );
        assert!(!store.is_held(key("a")));
    }
}

#[tokio::test(start_paused = true)]
async fn mine_gives_what_is_left_and_no_whole_lease() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    store.next(Op::Claim, [Act::LoseReply]);
    let off = Terms::builder(LEASE).renewal(Renewal::Off).build().unwrap();
    let claim = claim_as(&keeper, "a", &off).await;
    assert!(
        claim.remaining() <= LEASE * 5 / 6,
        "{:?}",
        claim.remaining()
    );
    tokio::time::sleep(claim.remaining()).await;
    assert!(store.is_held(key("a")), "the owner stops first");
    assert_eq!(claim.check(), Err(Loss::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_nearly_over_is_given_back_and_claimed_anew() {
    // curator #1121: a record of a dead session was taken for the own new one.
    let store = Scripted::new();
    let keeper = keeper(&store);
    let patient = Terms::builder(LEASE)
        .renewal(Renewal::Off)
        .attempt_timeout(LEASE * 2 / 5)
        .build()
        .unwrap();
    store.next(Op::Claim, [Act::LoseReply, Act::LoseReply]);
    let claim = claim_as(&keeper, "a", &patient).await;
    let sent = store.sent(Op::Claim);
    assert_eq!(sent.len(), 4);
    assert_eq!(sent[0].nonce, sent[2].nonce);
    assert_ne!(sent[2].nonce, sent[3].nonce, "a new nonce");
    assert_eq!(claim.token().get(), 2, "a new grant");
    assert!(claim.remaining() > LEASE * 4 / 5);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_died_on_the_way_is_not_handed_out() {
    // etcd #11456.
    let store = Scripted::new();
    let keeper = keeper(&store);
    store.next(Op::Claim, [Act::Suspend(LEASE * 2)]);
    let claim = claim(&keeper, "a").await;
    assert_eq!(claim.token().get(), 2);
    assert_eq!(claim.check(), Ok(()));
    assert!(claim.remaining() > LEASE * 4 / 5);
}

#[tokio::test(start_paused = true)]
async fn a_spent_nonce_is_replaced() {
    for spent in [Claimed::Ended, Claimed::TooLate] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        store.next(
            Op::Claim,
            [Act::Claimed(spent.clone()), Act::Claimed(spent)],
        );
        let claim = claim(&keeper, "a").await;
        let sent = store.sent(Op::Claim);
        assert_ne!(sent[0].nonce, sent[1].nonce);
        assert_eq!(claim.nonce(), sent[2].nonce);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_judges_every_call_too_late_is_given_up() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    store.always(Op::Claim, Act::Claimed(Claimed::TooLate));
    let error = keeper.claim(key("a"), None, &terms(), Token::ZERO).await;
    assert!(matches!(error, Err(StoreError::Unavailable(_))));
    assert_eq!(store.sent(Op::Claim).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn all_copies_of_a_claim_carry_one_not_after_that_outlasts_them() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    store.always(Op::Claim, Act::LoseReply);
    let error = keeper.claim(key("a"), None, &terms(), Token::ZERO).await;
    assert!(error.is_err());
    let (sent, limits) = (store.sent(Op::Claim), store.limits());
    assert_eq!(limits.len(), 3);
    assert!(limits.iter().all(|limit| *limit == limits[0]), "{limits:?}");
    let last_answer = sent[2].at + terms().attempt_timeout();
    assert!(
        limits[0].as_micros() as u128 >= last_answer.as_micros(),
        "{limits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_claim_leaves_the_key_free() {
    for lost in [Act::LoseReply, Act::LoseCall, Act::Ambiguous] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        store.always(Op::Claim, lost.clone());
        let error = keeper.claim(key("a"), None, &terms(), Token::ZERO).await;
        assert!(error.unwrap_err().is_ambiguous());
        assert_eq!(store.sent(Op::Claim).len(), 3);
        tokio::task::yield_now().await;
        settled(&keeper).await;
        assert!(!store.is_held(key("a")), "{lost:?}");
        store.always(Op::Claim, Act::Pass);
        let _ = claim(&keeper, "a").await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_store_is_told_at_once() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    store.next(Op::Claim, [Act::Unavailable]);
    let error = keeper.claim(key("a"), None, &terms(), Token::ZERO).await;
    assert!(matches!(error, Err(StoreError::Unavailable(_))));
    assert_eq!(store.log().len(), 1, "nothing was in doubt");
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_arrives_after_the_caller_has_left_takes_nothing() {
    for late in [MS, LEASE / 10, LEASE / 5, LEASE] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        store.always(Op::Claim, Act::ArriveLate(late));
        let terms = terms();
        let work = keeper.claim(key("a"), None, &terms, Token::ZERO);
        assert!(until_await(1, work).await.is_none());
        settled(&keeper).await;
        tokio::time::sleep(LEASE).await;
        assert!(!store.is_held(key("a")), "late by {late:?}");
        let releases = store.sent(Op::Release);
        assert!((1..=2).contains(&releases.len()), "late by {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_by_nonce_that_found_nothing_is_sent_again_past_not_after() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    store.always(Op::Claim, Act::LoseCall);
    let terms = terms();
    let work = keeper.claim(key("a"), None, &terms, Token::ZERO);
    assert!(until_await(1, work).await.is_none());
    settled(&keeper).await;
    let claim = &store.sent(Op::Claim)[0];
    let releases = store.sent(Op::Release);
    assert_eq!(releases.len(), 2);
    assert!(releases.iter().all(|r| r.nonce == claim.nonce));
    assert!(releases[0].at < claim.at + LEASE / 12, "at once");
    assert!(releases[1].at > claim.at + terms.attempt_timeout());
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_one_hold() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let keys = [key("b"), key("a"), key("b")];
    let AttemptMany::Granted(claim) = keeper
        .claim_many(&keys, &terms(), Token::ZERO)
        .await
        .unwrap()
    else {
        panic!("not granted");
    };
    assert_eq!(claim.keys().len(), 2, "sorted, without repeats");
    let taken = keeper
        .claim_many(&[key("b"), key("c")], &terms(), Token::ZERO)
        .await;
    assert!(
        matches!(&taken, Ok(AttemptMany::Refused { key: k, by: Attempt::Busy(_) }) if *k == key("b")),
        "{taken:?}"
    );
    tokio::time::sleep(LEASE * 3).await;
    assert_eq!(claim.check(), Ok(()));
    assert!(store.is_held(key("a")) && store.is_held(key("b")));
    assert!(
        claim
            .finish(crate::store::Value::Tombstone, LEASE)
            .await
            .is_err()
    );
    assert_eq!(
        claim.release().await.unwrap(),
        HandBack::Answered(Release::Released)
    );
    assert!(!store.is_held(key("a")) && !store.is_held(key("b")));
}

#[tokio::test(start_paused = true)]
async fn several_keys_need_a_keeper_made_for_them() {
    let store = Scripted::new();
    let single = Keeper::builder(store.clone())
        .run_on(RunOn::Task)
        .build()
        .unwrap();
    for keys in [&[][..], &[key("a")]] {
        let error = single.claim_many(keys, &terms(), Token::ZERO).await;
        assert!(
            matches!(error, Err(StoreError::Unsupported(_))),
            "{error:?}"
        );
    }
    assert!(store.log().is_empty(), "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn a_healed_claim_has_a_new_nonce_and_a_token_above_the_floor() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let behind = claim(&keeper, "a").await;
    let old = behind.nonce();
    let floor = Token::new(41).unwrap();
    let Ok(Attempt::Granted(healed)) = keeper.heal(behind, floor).await else {
        panic!("not healed");
    };
    assert!(healed.token() > floor);
    assert_ne!(healed.nonce(), old);

    let clone = healed.clone();
    assert!(keeper.heal(healed, floor).await.is_err(), "a clone lives");
    assert_eq!(clone.check(), Ok(()));
}
