//! The server's wall clock is moved by an hour.

use std::time::{Duration, Instant};

use system_tests::relay::{Relay, Way};
use system_tests::servers::MovedClock;
use tower_claim::store::{Event, Finish, Promise, Value};
use tower_claim::{Attempt, Terms};

use super::Clocked;
use super::scene::{ANSWER, Guard, Party, terms, within};
use crate::suite::key;

const HOUR: i64 = 3600;

/// An hour ahead: a hold lapses under an owner who believes in it, and a result outlives its keep. The guard
/// knows better.
pub async fn ahead<E: Clocked>() {
    let clock = MovedClock::new();
    let engine = E::start_under(&clock).await;
    let owner = Party::at::<E>(engine.address()).await;
    let rival = Party::at::<E>(engine.address()).await;
    let weakened = rival.store.dyn_capabilities().weakened;
    let (work, result, guard) = (key(), key(), Guard::default());
    // Beats are so far apart that the owner hears of nothing while the test looks.
    let terms = Terms::builder(Duration::from_secs(30))
        .build()
        .expect("a lease long enough");
    let done = owner.take(result, &terms, ANSWER).await;
    let told = done
        .finish(Value::Tombstone, Duration::from_secs(600))
        .await;
    assert_eq!(told.expect("it is answered"), Finish::Finished);
    let held = owner.take(work, &terms, ANSWER).await;
    assert!(guard.write_as(&held).await);

    clock.set(HOUR);
    // The first call may be told that it comes an hour too late.
    let next = rival.take(work, &terms, ANSWER).await;
    assert_eq!(held.check(), Ok(()), "the owner cannot know");
    assert!(
        weakened.may(Event::MovedClock, Promise::OneOwner),
        "two owners under a moved clock, and `capabilities()` does not say so"
    );
    drop(rival.take(result, &terms, ANSWER).await);
    assert!(
        weakened.may(Event::MovedClock, Promise::OneResult),
        "a result is gone under a moved clock, and `capabilities()` does not say so"
    );
    assert!(next.token() > held.token());
    assert!(guard.write_as(&next).await);
    assert!(!guard.write_as(&held).await, "the old owner writes");
    within(terms.lease(), "the loss", held.lost()).await;
    assert_eq!(next.check(), Ok(()));
}

/// An hour back: a dead owner's hold does not lapse until the clock is right again. Where tokens fall, the
/// guard refuses, and the owner heals.
pub async fn back<E: Clocked>() {
    let clock = MovedClock::new();
    let engine = E::start_under(&clock).await;
    let relay = Relay::to(engine.address());
    let owner = Party::at::<E>(relay.address()).await;
    let rival = Party::at::<E>(engine.address()).await;
    let weakened = rival.store.dyn_capabilities().weakened;
    let (work, terms, guard) = (key(), terms::<E>(), Guard::default());
    let held = owner.take(work, &terms, ANSWER).await;
    assert!(guard.write_as(&held).await);
    // As good as dead.
    relay.set(Way::Freeze);
    clock.set(-HOUR);
    let until = Instant::now() + E::lease() * 2;
    while Instant::now() < until {
        let asked = rival.try_take(work, &terms).await;
        assert!(
            !matches!(asked, Ok(Attempt::Granted(_))),
            "`claimable again` is said to be weakened, and is not: {asked:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(held.check().is_err(), "the owner goes by its own clock");
    assert!(
        weakened.may(Event::MovedClock, Promise::ClaimableAgain),
        "a key stays taken under a moved clock, and `capabilities()` does not say so"
    );
    clock.set(0);
    let next = rival.take(work, &terms, E::lease() + ANSWER).await;
    assert!(next.token() > held.token());
    assert!(guard.write_as(&next).await);
    assert!(!guard.write_as(&held).await, "the old owner writes");
    drop(next);

    // A record that was forgotten when its time had come (here wiped, not to wait for that) leaves the clock
    // as the only memory of the last token, and the clock goes back.
    let known = rival.take(work, &terms, ANSWER).await;
    let last = known.token();
    assert!(guard.write_as(&known).await);
    known.release().await.expect("it is answered");
    engine.wipe().await;
    clock.set(-HOUR);
    let fallen = rival.take(work, &terms, ANSWER).await;
    assert_eq!(
        fallen.token() <= last,
        weakened.may(Event::MovedClock, Promise::RisingTokens),
        "whether tokens rise under a moved clock is not what `capabilities()` says"
    );
    if fallen.token() > last {
        // The engine has another source of order than its clock.
        assert!(guard.write_as(&fallen).await);
        return;
    }
    assert!(!guard.write_as(&fallen).await, "tokens went back");
    let floor = guard.high_water().await;
    let healed = within(ANSWER, "healing", rival.keeper.heal(fallen, floor)).await;
    let Ok(Attempt::Granted(healed)) = healed else {
        panic!("a claim that heals: {healed:?}");
    };
    assert!(healed.token() > last);
    assert!(guard.write_as(&healed).await);
}
