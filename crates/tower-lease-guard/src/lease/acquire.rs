//! From keys to a lease, or to the refusal that says why not.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tower_claim::store::{Busy, Cooling};
use tower_claim::{Attempt, AttemptMany, Claim, Code, Key, Moment, Refusal, StoreError, Token};

use super::layer::Shared;
use crate::report::Board;

/// What a request wants: names for people, keys for the store.
pub(super) struct Wanted {
    pub(super) resources: Arc<[Arc<str>]>,
    pub(super) keys: Vec<Key>,
}

enum Tried {
    Granted(Claim),
    Held(Held),
    Refused(Refusal),
}

enum Held {
    /// Under which key, by whom.
    Busy(Key, Busy),
    Cooling(Cooling),
}

/// Claims, and waits for a holder where the layer was told to. Nothing is held while it waits.
///
/// Dropped at any await, the keeper gives back what was or still may be granted.
pub(super) async fn acquire(
    shared: &Shared,
    wanted: &Wanted,
    wait: Option<Duration>,
    board: &Board,
) -> Result<Claim, Refusal> {
    let clock = shared.keeper.clock();
    let deadline = wait.map(|wait| clock.now() + wait);
    let mut place = None;
    loop {
        let tried = match try_once(shared, wanted).await {
            Tried::Granted(claim) => return Ok(claim),
            Tried::Refused(refusal) => return Err(refusal),
            Tried::Held(tried) => tried,
        };
        if deadline.is_some() && place.is_none() {
            // Of all that wait, not of this key's: what is bounded is memory.
            let Ok(mine) = shared.waiters.try_acquire() else {
                return Err(overloaded());
            };
            place = Some(mine);
        }
        match (tried, deadline) {
            (Held::Busy(_, busy), None) => return Err(leased(&busy)),
            (Held::Cooling(cooling), None) => return Err(cooled(&cooling)),
            // Also where each time another was quicker: the watch is over before the deadline is looked at.
            (Held::Busy(_, busy), Some(deadline)) if clock.now() >= deadline => {
                return Err(waited_too_long(&busy));
            }
            (Held::Busy(key, busy), Some(deadline)) => {
                let _waiting = board.wait_for(&busy.label);
                let store = shared.keeper.store();
                let watch = store.dyn_watch(key, busy.token);
                match select(watch, clock.sleep_until(deadline)).await {
                    Either::Left((Ok(_), _)) => {}
                    Either::Left((Err(error), _)) => return Err(unavailable(&error)),
                    Either::Right(_) => return Err(waited_too_long(&busy)),
                }
            }
            (Held::Cooling(cooling), Some(deadline)) => {
                let _waiting = board.wait_for("cooling");
                let over: Moment = clock.now() + cooling.remaining;
                if over > deadline {
                    return Err(cooled(&cooling));
                }
                clock.sleep_until(over).await;
            }
        }
    }
}

async fn try_once(shared: &Shared, wanted: &Wanted) -> Tried {
    let first = wanted.keys[0];
    let terms = shared.terms_for(first);
    let attempt = if shared.many {
        match shared
            .keeper
            .claim_many(&wanted.keys, &terms, Token::ZERO)
            .await
        {
            Ok(AttemptMany::Granted(claim)) => Ok((first, Attempt::Granted(claim))),
            Ok(AttemptMany::Refused { key, by }) => Ok((key, by)),
            Ok(_) => Err(StoreError::Unsupported("an answer of a newer version")),
            Err(error) => Err(error),
        }
    } else {
        let one = shared.keeper.claim(first, None, &terms, Token::ZERO).await;
        one.map(|attempt| (first, attempt))
    };
    match attempt {
        Ok((_, Attempt::Granted(claim))) => Tried::Granted(claim),
        Ok((key, Attempt::Busy(busy))) => Tried::Held(Held::Busy(key, busy)),
        Ok((_, Attempt::Cooling(cooling))) => Tried::Held(Held::Cooling(cooling)),
        // A lease is never finished nor marked: somebody else's records are under our namespace.
        Ok(_) => Tried::Refused(Refusal::new(Code::OutcomeUnknown).with_detail(
            "the record of this resource is not a lease; give each use a namespace of its own",
        )),
        Err(error) => Tried::Refused(unavailable(&error)),
    }
}

fn leased(busy: &Busy) -> Refusal {
    Refusal::new(Code::Leased)
        .with_retry_after(busy.expires_in)
        .with_detail(holder(busy))
}

fn holder(busy: &Busy) -> String {
    let since = busy.since.as_millis();
    if busy.label.is_empty() {
        format!("held for {since} ms")
    } else {
        format!("held by {} for {since} ms", busy.label)
    }
}

fn cooled(cooling: &Cooling) -> Refusal {
    Refusal::new(Code::Cooling).with_retry_after(cooling.remaining)
}

fn waited_too_long(busy: &Busy) -> Refusal {
    Refusal::new(Code::WaitTimeout)
        .with_retry_after(busy.expires_in)
        .with_detail(holder(busy))
}

fn overloaded() -> Refusal {
    Refusal::new(Code::Overloaded)
        .with_retry_after(Duration::from_secs(1))
        .with_detail("too many requests wait for leases already")
}

fn unavailable(error: &StoreError) -> Refusal {
    let refusal = Refusal::new(Code::StoreUnavailable);
    match error {
        StoreError::Full => refusal.with_detail("the store has no room for a new lease"),
        _ => refusal.with_detail("the lease could not be taken; nothing was run"),
    }
}

/// Two lease layers ask for one key.
pub(super) fn leased_by_caller() -> Refusal {
    Refusal::new(Code::LeasedByCaller).with_detail(
        "this request holds the lease already; hand its `Lease` to the inner call instead of asking again",
    )
}

/// The layer's `drain` was called.
pub(super) fn shutting_down() -> Refusal {
    Refusal::new(Code::ShuttingDown)
}
