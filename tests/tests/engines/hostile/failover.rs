//! The primary is lost, and another takes its place: perhaps without the last writes.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use system_tests::relay::{Relay, Way};
use tower_claim::store::{Event, Promise, Value};
use tower_claim::{Attempt, DynClaimStore, Loss};

use super::Engine;
use super::scene::{
    ANSWER, Guard, Party, beaten, high_floor, named, settled, terms, unheard, within,
};
use crate::suite::key;

/// A primary and what stands in for it.
pub trait Pair: Send + Sized {
    /// What runs on each.
    type Engine: Engine;

    /// Starts both.
    fn start() -> BoxFuture<'static, Self>;

    /// How clients open a store on the one at `HOST:PORT`.
    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
        Self::Engine::connect(address)
    }

    /// `HOST:PORT` of the primary.
    fn primary(&self) -> String;

    /// Waits until the other has every write. Where the primary answers without it, it gets no more.
    fn cut_replication(&mut self);

    /// Kills the primary and promotes the other; its `HOST:PORT`.
    fn promote(&mut self) -> String;
}

/// What the other had is kept; what it lacked is forgotten, as `capabilities()` says; the guard is not
/// deceived.
pub async fn of<P: Pair>() {
    let mut pair = P::start().await;
    // The address that clients know moves to the other.
    let front = Relay::to(pair.primary());
    let fragile = Relay::to(pair.primary());
    let party = async |relay: &Relay| {
        let connecting = P::connect(relay.address());
        Party::with(within(ANSWER, "connecting", connecting).await)
    };
    let (owner, rival, dies) = (
        party(&front).await,
        party(&front).await,
        party(&fragile).await,
    );
    let (work, result, guard) = (key(), key(), Guard::default());
    let unheard = unheard();

    let kept = owner.take(key(), &unheard, ANSWER).await;
    let short = terms::<P::Engine>();
    let dead = dies.take(key(), &short, ANSWER).await;
    pair.cut_replication();
    owner.finish(result, &unheard, Value::Tombstone).await;
    let held = owner.take_above(work, &unheard, high_floor()).await;
    assert!(guard.write_as(&held).await);

    fragile.set(Way::Freeze);
    front.lead_to(pair.promote());
    front.cut();
    settled(&rival.store).await;
    let asked = rival.try_take(kept.key(), &unheard).await;
    assert!(matches!(asked, Ok(Attempt::Busy(_))), "{asked:?}");
    let asked = rival.try_take(work, &unheard).await;
    assert_eq!(held.check(), Ok(()), "the owner cannot know");
    let forgot_result = rival
        .has_forgotten(result, &unheard, &Value::Tombstone)
        .await;
    let forgot_owner = match asked {
        Ok(Attempt::Granted(next)) => {
            let (next, fell) = guard.pass_to(next, &held, &rival.keeper).await;
            let loss = within(unheard.lease(), "the loss", held.lost()).await;
            assert_eq!(loss, Loss::Stolen);
            assert_eq!(next.check(), Ok(()));
            Some(fell)
        }
        Ok(Attempt::Busy(_)) => {
            beaten(&held).await;
            None
        }
        other => panic!("{other:?}"),
    };
    beaten(&kept).await;
    // The owner died with the primary: an election may begin its lease anew, and no more.
    let limit = short.lease() * 3 + ANSWER;
    drop(rival.take(dead.key(), &short, limit).await);
    let seen = [
        (Promise::RisingTokens, forgot_owner == Some(true)),
        (Promise::OneOwner, forgot_owner.is_some()),
        (Promise::OneResult, forgot_result),
        (Promise::ClaimableAgain, false),
    ];
    named(&rival.store, Event::Failover, &seen);
}
