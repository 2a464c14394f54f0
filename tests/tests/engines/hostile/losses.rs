//! The server is killed and started again, or wiped.

use std::time::Instant;

use system_tests::relay::{Relay, Way};
use tower_claim::store::{Event, Promise, Value};
use tower_claim::{Attempt, Loss};

use super::Server;
use super::scene::{
    ANSWER, Guard, Party, TOLERANCE, beaten, high_floor, named, settled, terms, two, unheard,
    within,
};
use crate::suite::key;

/// Killed and started again: durable engines keep holds and results, others forget, as they say.
pub async fn restart<E: Server>() {
    let mut engine = E::start().await;
    let relay = Relay::to(engine.address());
    let owner = Party::at::<E>(relay.address()).await;
    let rival = Party::at::<E>(engine.address()).await;
    let (work, dead, result) = (key(), key(), key());
    let (terms, unheard, guard) = (terms::<E>(), unheard(), Guard::default());
    let value = Value::Kept("once".into());
    owner.finish(result, &terms, value.clone()).await;
    let held = owner.take_above(work, &unheard, high_floor()).await;
    assert!(guard.write_as(&held).await);
    let dies = owner.take(dead, &terms, ANSWER).await;

    engine.kill();
    let down = within(
        ANSWER,
        "a call without a server",
        rival.store.dyn_peek(work),
    )
    .await;
    let down = down.expect_err("nobody can have answered");
    assert!(down.is_retryable(), "{down:?}");
    engine.run();
    settled(&rival.store).await;

    let forgot_result = rival.has_forgotten(result, &terms, &value).await;
    let asked = rival.try_take(work, &terms).await;
    assert_eq!(held.check(), Ok(()), "the owner cannot know");
    let forgot_owner = match asked {
        Ok(Attempt::Granted(next)) => {
            let (next, fell) = guard.pass_to(next, &held, &rival.keeper).await;
            let loss = within(unheard.lease(), "the loss", held.lost()).await;
            assert_eq!(loss, Loss::Stolen);
            drop(next);
            Some(fell)
        }
        Ok(Attempt::Busy(_)) => {
            // A kept hold is as good as before: its beats find the server.
            beaten(&held).await;
            None
        }
        other => panic!("{other:?}"),
    };
    // Cut off for good, it lapses as if nothing had been.
    relay.set(Way::Freeze);
    let cut = Instant::now();
    drop(rival.take(dead, &terms, E::lease() * 2 + ANSWER).await);
    assert!(cut.elapsed() <= E::lease() * 2 + TOLERANCE);
    assert!(dies.check().is_err());
    let seen = [
        (Promise::RisingTokens, forgot_owner == Some(true)),
        (Promise::OneOwner, forgot_owner.is_some()),
        (Promise::OneResult, forgot_result),
        (Promise::ClaimableAgain, false),
    ];
    named(&rival.store, Event::Restart, &seen);
}

/// Wiped in mid-lease: the next owner is granted at once. Where its token is not above the old one's, the guard
/// says so, and it heals.
pub async fn wipe<E: Server>() {
    let engine = E::start().await;
    let (owner, rival) = two(&engine).await;
    let (work, result, terms, guard) = (key(), key(), terms::<E>(), Guard::default());
    owner.finish(result, &terms, Value::Tombstone).await;
    // What an engine knows from the record alone is gone with it.
    let held = owner.take_above(work, &terms, high_floor()).await;
    assert!(guard.write_as(&held).await);

    engine.wipe().await;
    let asked = rival.try_take(work, &terms).await;
    let Ok(Attempt::Granted(next)) = asked else {
        panic!("a wiped key is free: {asked:?}");
    };
    let believed = held.check().is_ok();
    let forgot = rival.has_forgotten(result, &terms, &Value::Tombstone).await;
    let (next, fell) = guard.pass_to(next, &held, &rival.keeper).await;
    let loss = within(E::lease() + ANSWER, "the loss", held.lost()).await;
    assert_eq!(loss, Loss::Stolen);
    assert_eq!(next.check(), Ok(()));
    let seen = [
        (Promise::RisingTokens, fell),
        (Promise::OneOwner, believed),
        (Promise::OneResult, forgot),
        // It was granted above.
        (Promise::ClaimableAgain, false),
    ];
    named(&rival.store, Event::Flush, &seen);
}
