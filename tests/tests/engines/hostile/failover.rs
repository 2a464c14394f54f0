//! A replica is promoted that lacks the last writes.

use std::time::Duration;

use futures_util::future::BoxFuture;
use system_tests::relay::Relay;
use tower_claim::store::{Event, Finish, Promise, Value};
use tower_claim::{Attempt, Loss, Terms, Token};

use super::Engine;
use super::outages::settled;
use super::scene::{ANSWER, Guard, Party, within};
use crate::suite::key;

/// A primary and its asynchronous replica.
pub trait Pair: Send + Sized {
    /// What runs on each.
    type Engine: Engine;

    /// Starts both.
    fn start() -> BoxFuture<'static, Self>;

    /// `HOST:PORT` of the primary.
    fn primary(&self) -> String;

    /// Waits until the replica has every write, then lets no more through to it.
    fn cut_replication(&mut self);

    /// Kills the primary and promotes the replica; its `HOST:PORT`.
    fn promote(&mut self) -> String;
}

/// What the replica had is kept; what it lacked is forgotten, as `capabilities()` says; the guard is not
/// deceived.
pub async fn lost_writes<P: Pair>() {
    let mut pair = P::start().await;
    // The address that clients know moves to the replica.
    let front = Relay::to(pair.primary());
    let owner = Party::at::<P::Engine>(front.address()).await;
    let rival = Party::at::<P::Engine>(front.address()).await;
    let weakened = rival.store.dyn_capabilities().weakened;
    let (work, result, guard) = (key(), key(), Guard::default());
    // Beats are so far apart that the owner hears of nothing while the test looks.
    let terms = Terms::builder(Duration::from_secs(30))
        .build()
        .expect("a lease long enough");

    let kept = owner.take(key(), &terms, ANSWER).await;
    pair.cut_replication();
    let done = owner.take(result, &terms, ANSWER).await;
    let told = done
        .finish(Value::Tombstone, Duration::from_secs(600))
        .await;
    assert_eq!(told.expect("it is answered"), Finish::Finished);
    // What a floor had raised a token to may be known from the record alone.
    let falls = weakened.may(Event::Failover, Promise::RisingTokens);
    let floor = Token::new(if falls { 1 << 52 } else { 0 }).expect("below the highest");
    let held = owner.keeper.claim(work, None, &terms, floor).await;
    let Ok(Attempt::Granted(held)) = held else {
        panic!("a free key: {held:?}");
    };
    assert!(guard.write_as(&held).await);

    front.lead_to(pair.promote());
    front.cut();
    settled(&rival.store).await;
    let asked = rival.try_take(kept.key(), &terms).await;
    assert!(matches!(asked, Ok(Attempt::Busy(_))), "{asked:?}");
    let mut next = rival.take(work, &terms, ANSWER).await;
    assert_eq!(held.check(), Ok(()), "the owner cannot know");
    assert!(
        weakened.may(Event::Failover, Promise::OneOwner),
        "two owners after a failover, and `capabilities()` does not say so"
    );
    drop(rival.take(result, &terms, ANSWER).await);
    assert!(
        weakened.may(Event::Failover, Promise::OneResult),
        "a result is gone after a failover, and `capabilities()` does not say so"
    );
    assert_eq!(
        next.token() <= held.token(),
        falls,
        "whether tokens rise over a failover is not what `capabilities()` says"
    );
    if falls {
        assert!(!guard.write_as(&next).await, "tokens went back");
        let healing = rival.keeper.heal(next, guard.high_water().await);
        let healed = within(ANSWER, "healing", healing).await;
        let Ok(Attempt::Granted(healed)) = healed else {
            panic!("a claim that heals: {healed:?}");
        };
        next = healed;
    }
    assert!(guard.write_as(&next).await);
    assert!(!guard.write_as(&held).await, "the old owner writes");
    assert_eq!(
        within(terms.lease(), "the loss", held.lost()).await,
        Loss::Stolen
    );
    assert_eq!(next.check(), Ok(()));
    assert_eq!(kept.check(), Ok(()), "its beats find the replica");
}
