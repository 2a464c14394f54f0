//! What the keeper tells to `tracing`: nobody waits for what it does.
#![cfg_attr(
    not(feature = "tracing"),
    allow(unused_variables, reason = "nobody is told")
)]

use super::hold::Hold;
use super::state::Phase;
use crate::StoreError;
use crate::store::{Finish, Owner};

/// An event of the keeper, where there is `tracing`.
macro_rules! tell {
    ($level:ident, $($told:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::event!(target: "tower_claim::keeper", tracing::Level::$level, $($told)*);
    }};
}

/// The hold is not renewed any more: because it was lost, or because its owner has ended it, which is nothing to
/// tell of.
pub(super) fn over(hold: &Hold) {
    let state = hold.lock();
    let loss = state.loss().filter(|_| state.phase == Phase::Open);
    drop(state);
    if let Some(loss) = loss {
        tell!(
            WARN,
            key = hold.owner().key.prefix(),
            token = hold.token.get(),
            %loss,
            "a claim was lost while its work goes on",
        );
    }
}

pub(super) fn unanswered(holds: usize, error: &StoreError) {
    tell!(DEBUG, holds, %error, "a heartbeat was not answered");
}

/// A finish whose owner did not hear an answer. `None`: nor did the keeper.
pub(super) fn brought_home(owner: Owner, answer: Option<Finish>) {
    match answer {
        Some(Finish::Finished) => tell!(
            INFO,
            key = owner.key.prefix(),
            token = owner.token.get(),
            "a result was brought home late",
        ),
        Some(Finish::Lost) => tell!(
            WARN,
            key = owner.key.prefix(),
            token = owner.token.get(),
            "a result came too late: another owner had taken over",
        ),
        None => tell!(
            ERROR,
            key = owner.key.prefix(),
            token = owner.token.get(),
            "a result was not brought home in time: the work is done, and nobody knows of it",
        ),
    }
}

pub(super) fn worker_panicked() {
    tell!(ERROR, "the keeper's worker panicked, and begins anew");
}
