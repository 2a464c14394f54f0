//! Beats: when they are sent, what their answers mean, and what ends a hold.

use super::*;
use crate::LapsePolicy;
use crate::store::{Finish, LostReason, Renewed, Value};

fn progress(stall_after: Duration) -> Terms {
    Terms::builder(LEASE)
        .renewal(Renewal::Progress { stall_after })
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_at_a_third_of_its_lease() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim(&keeper, "a").await;
    let token = claim.token();
    tokio::time::sleep(LEASE * 10).await;
    assert_eq!(claim.check(), Ok(()));
    assert_eq!(claim.token(), token);
    assert!(store.is_held(key("a")));
    let beats = store.sent(Op::Renew);
    assert!((26..=36).contains(&beats.len()), "{}", beats.len());
    for pair in beats.windows(2) {
        let gap = pair[1].at - pair[0].at;
        assert!(
            gap >= LEASE / 3 * 84 / 100 && gap <= LEASE / 3 * 116 / 100,
            "{gap:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn holds_due_together_share_a_call() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let mut claims = Vec::new();
    for i in 0..200 {
        claims.push(claim(&keeper, &format!("{i}")).await);
    }
    tokio::time::sleep(LEASE * 4).await;
    assert!(claims.iter().all(|c| c.check().is_ok()));
    let calls = store.sent(Op::Renew).len();
    assert!(calls < 12 * 10, "{calls} calls for some 2400 beats");
}

#[tokio::test(start_paused = true)]
async fn without_renewal_nothing_is_sent_and_the_hold_ends_by_the_clock() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let off = Terms::builder(LEASE).renewal(Renewal::Off).build().unwrap();
    let claim = claim_as(&keeper, "a", &off).await;
    let lost = claim.lost().await;
    assert_eq!(lost, Loss::Expired);
    assert!(store.is_held(key("a")), "told before the lapse");
    assert_eq!(claim.check(), Err(Loss::Expired));
    assert!(store.sent(Op::Renew).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_is_not_revived() {
    // lion-reader #917: a late heartbeat stole the lease back.
    let store = Scripted::new();
    let keeper = keeper(&store);
    let a = claim(&keeper, "a").await;
    store.always(Op::Renew, Act::LoseCall);
    tokio::time::sleep(LEASE).await;
    assert!(!store.is_held(key("a")));
    store.always(Op::Renew, Act::Pass);
    let b = claim(&keeper, "a").await;
    assert!(b.token() > a.token());
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(a.check(), Err(Loss::StoreUnreachable));
    assert_eq!(b.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_third_of_the_lease_is_survived() {
    // ShedLock's keep-alive ended with the first exception.
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim(&keeper, "a").await;
    for _ in 0..5 {
        store.always(Op::Renew, Act::Unavailable);
        tokio::time::sleep(LEASE / 3).await;
        store.always(Op::Renew, Act::Pass);
        tokio::time::sleep(LEASE / 2).await;
    }
    assert_eq!(claim.check(), Ok(()));
    assert!(store.is_held(key("a")));
}

#[tokio::test(start_paused = true)]
async fn failed_and_unsure_beats_are_retried_before_the_stop_point() {
    for doubt in [
        Act::Unavailable,
        Act::Ambiguous,
        Act::Garbled,
        Act::Panic,
        Act::LoseReply,
        Act::LoseCall,
        Act::Renewed(Renewed::Unsure),
    ] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        let claim = claim(&keeper, "a").await;
        store.next(Op::Renew, [doubt.clone(), doubt.clone()]);
        tokio::time::sleep(LEASE * 2).await;
        assert_eq!(claim.check(), Ok(()), "{doubt:?}");
        assert!(store.is_held(key("a")), "{doubt:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_names_another_owner_ends_the_hold_at_once() {
    for (reason, loss) in [
        (LostReason::Superseded, Loss::Stolen),
        (LostReason::Broken, Loss::Broken),
        (LostReason::Lapsed, Loss::Expired),
    ] {
        let store = Scripted::new();
        let keeper = keeper(&store);
        let claim = claim(&keeper, "a").await;
        store.next(Op::Renew, [Act::Renewed(Renewed::Lost(reason))]);
        let begun = tokio::time::Instant::now();
        assert_eq!(claim.lost().await, loss);
        assert!(begun.elapsed() < LEASE / 2, "at the first beat");
        assert_eq!(claim.check(), Err(loss));
        tokio::time::sleep(LEASE).await;
        assert_eq!(store.sent(Op::Renew).len(), 1, "no beat for a lost hold");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_hold_is_told() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim(&keeper, "a").await;
    store.break_claim(key("a"));
    assert_eq!(claim.lost().await, Loss::Broken);
}

#[tokio::test(start_paused = true)]
async fn an_operators_wish_reaches_the_owner_with_a_beat() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim(&keeper, "a").await;
    let mut asked = tokio::spawn(claim.revoke_requested());
    assert!(tokio::time::timeout(LEASE, &mut asked).await.is_err());
    store.ask_revoke();
    tokio::time::timeout(LEASE / 2, asked)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(claim.check(), Ok(()), "asked, not forced");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_move_loses_its_hold() {
    // RedLock.net #68: a stuck job kept its lock for ever.
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim_as(&keeper, "a", &progress(LEASE * 2)).await;
    claim.progress(1);
    let begun = tokio::time::Instant::now();
    let job = tokio::spawn(claim.lost());
    assert_eq!(job.await.unwrap(), Loss::Stalled);
    assert!(begun.elapsed() >= LEASE * 2, "{:?}", begun.elapsed());
    let held = tokio::time::timeout(LEASE * 2, async {
        while store.is_held(key("a")) {
            tokio::time::sleep(MS).await;
        }
    });
    held.await.unwrap();
    assert!(begun.elapsed() <= LEASE * 3, "{:?}", begun.elapsed());
    let next = claim_as(&keeper, "a", &progress(LEASE * 2)).await;
    assert!(next.token() > claim.token());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_moves_keeps_its_hold() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim_as(&keeper, "a", &progress(LEASE)).await;
    for _ in 0..20 {
        tokio::time::sleep(LEASE / 2).await;
        claim.touch();
        assert_eq!(claim.check(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_hold_that_is_renewed() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let capped = Terms::builder(LEASE).max_hold(LEASE * 3).build().unwrap();
    let claim = claim_as(&keeper, "a", &capped).await;
    let begun = tokio::time::Instant::now();
    let lost = tokio::time::timeout(LEASE * 6, claim.lost()).await;
    assert_eq!(lost, Ok(Loss::Expired));
    assert!(begun.elapsed() >= LEASE * 3 && begun.elapsed() < LEASE * 3 + 20 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_dead_store_is_told_at_the_stop_point() {
    // etcd #6127: the holder learnt of it with the TCP timeout.
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim(&keeper, "a").await;
    let stop = claim.remaining();
    store.always(Op::Renew, Act::LoseCall);
    let begun = tokio::time::Instant::now();
    assert_eq!(claim.lost().await, Loss::StoreUnreachable);
    let late = begun.elapsed().saturating_sub(stop);
    assert!(begun.elapsed() + MS >= stop && late < 20 * MS, "{late:?}");
    assert!(store.is_held(key("a")), "told before the lapse");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_through_its_lease_knows_at_the_first_look() {
    // rust-lang/rust #87906: Instant does not count suspend on Linux.
    let store = Scripted::new();
    let keeper = keeper(&store);
    let claim = claim(&keeper, "a").await;
    store.clock.sleep(LEASE * 10);
    assert_eq!(claim.check(), Err(Loss::Expired));
    assert_eq!(claim.lost().await, Loss::Expired);
}

#[tokio::test(start_paused = true)]
async fn without_a_keeper_alive_check_and_lost_compare_clocks() {
    // client-go's IsLeader() is a flag: true for whoever was seen last.
    let store = Scripted::new();
    let keeper = {
        // The worker's runtime is gone before the first beat.
        let elsewhere = std::thread::spawn({
            let store = store.clone();
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                let _entered = runtime.enter();
                super::keeper(&store)
            }
        });
        elsewhere.join().unwrap()
    };
    let claim = claim(&keeper, "a").await;
    let stop = claim.remaining();
    tokio::time::sleep(stop - MS).await;
    assert_eq!(claim.check(), Ok(()));
    assert_eq!(claim.lost().await, Loss::Expired);
    assert_eq!(claim.check(), Err(Loss::Expired));
    assert!(store.sent(Op::Renew).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lapse_that_nobody_can_use_does_not_stop_the_work() {
    // A slow store must not make needless unknown outcomes.
    let store = Scripted::new();
    let keeper = keeper(&store);
    let hold = Terms::builder(LEASE)
        .on_lapse(LapsePolicy::Hold)
        .build()
        .unwrap();
    let claim = claim_as(&keeper, "a", &hold).await;
    store.always(Op::Renew, Act::LoseCall);
    tokio::time::sleep(LEASE * 2).await;
    assert!(!store.is_held(key("a")), "lapsed");
    store.always(Op::Renew, Act::Pass);
    tokio::time::sleep(LEASE).await;
    assert_eq!(claim.check(), Ok(()));
    assert_eq!(
        claim.finish(Value::Tombstone, LEASE).await.unwrap(),
        Finish::Finished
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_neighbour_costs_no_hold() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    // Enough of them that hardly a call goes out for one alone.
    let mut claims = Vec::new();
    for i in 0..1000 {
        claims.push(claim(&keeper, &format!("{i}")).await);
    }
    store.always(Op::Renew, Act::GarbledTogether);
    tokio::time::sleep(LEASE * 3).await;
    assert!(claims.iter().all(|c| c.check().is_ok()));
}
