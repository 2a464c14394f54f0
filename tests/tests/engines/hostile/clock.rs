//! The server's wall clock is moved by an hour.

use std::time::{Duration, Instant};

use system_tests::relay::{Relay, Way};
use system_tests::servers::MovedClock;
use tower_claim::Attempt;
use tower_claim::store::{Event, Promise, Value};

use super::Clocked;
use super::scene::{ANSWER, Guard, Party, named, terms, two, unheard, within};
use crate::suite::key;

const HOUR: i64 = 3600;

/// An hour ahead: a hold lapses under an owner who believes in it, and a result outlives its keep. The guard
/// knows better.
pub async fn ahead<E: Clocked>() {
    let clock = MovedClock::new();
    let engine = E::start_under(&clock).await;
    let (owner, rival) = two(&engine).await;
    let (work, result, guard) = (key(), key(), Guard::default());
    let unheard = unheard();
    owner.finish(result, &unheard, Value::Tombstone).await;
    let held = owner.take(work, &unheard, ANSWER).await;
    assert!(guard.write_as(&held).await);

    clock.set(HOUR);
    // The first call may be told that it comes an hour too late.
    let next = rival.take(work, &unheard, ANSWER).await;
    let believed = held.check().is_ok();
    let forgot = rival
        .has_forgotten(result, &unheard, &Value::Tombstone)
        .await;
    let (next, fell) = guard.pass_to(next, &held, &rival.keeper).await;
    assert!(!fell, "the clock went ahead");
    within(unheard.lease(), "the loss", held.lost()).await;
    assert_eq!(next.check(), Ok(()));
    let seen = [(Promise::OneOwner, believed), (Promise::OneResult, forgot)];
    named(&rival.store, Event::MovedClock, &seen);
}

/// An hour back: a dead owner's hold does not lapse until the clock is right again. Where tokens fall, the
/// guard refuses, and the owner heals.
pub async fn back<E: Clocked>() {
    let clock = MovedClock::new();
    let engine = E::start_under(&clock).await;
    let relay = Relay::to(engine.address());
    let owner = Party::at::<E>(relay.address()).await;
    let rival = Party::at::<E>(engine.address()).await;
    let (work, terms, guard) = (key(), terms::<E>(), Guard::default());
    let held = owner.take(work, &terms, ANSWER).await;
    assert!(guard.write_as(&held).await);
    // As good as dead.
    relay.set(Way::Freeze);
    clock.set(-HOUR);
    // Twice what a claim may have to wait after a crash.
    let until = Instant::now() + E::lease() * 2;
    let mut claimable = None;
    while claimable.is_none() && Instant::now() < until {
        if let Ok(Attempt::Granted(next)) = rival.try_take(work, &terms).await {
            claimable = Some(next);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stays_taken = claimable.is_none();
    assert!(held.check().is_err(), "the owner goes by its own clock");
    clock.set(0);
    let next = match claimable {
        Some(next) => next,
        None => rival.take(work, &terms, E::lease() + ANSWER).await,
    };
    let (next, _) = guard.pass_to(next, &held, &rival.keeper).await;
    drop(next);

    // A record that was forgotten when its time had come (here wiped, not to wait for that) leaves the clock
    // as the only memory of the last token, and the clock goes back.
    let known = rival.take(work, &terms, ANSWER).await;
    assert!(guard.write_as(&known).await);
    engine.wipe().await;
    clock.set(-HOUR);
    let next = rival.take(work, &terms, ANSWER).await;
    let (_, fell) = guard.pass_to(next, &known, &rival.keeper).await;
    let seen = [
        (Promise::ClaimableAgain, stays_taken),
        (Promise::RisingTokens, fell),
    ];
    named(&rival.store, Event::MovedClock, &seen);
}
