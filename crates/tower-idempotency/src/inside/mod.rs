//! A claim inside the user's transaction: its first statement, seen by nobody before the commit.
//!
//! Nothing outside keeps such a claim alive, and nothing has to: it ends with its transaction. So there is no lease
//! that could lapse, no takeover, and after a crash not even a record.

mod claim;
mod here;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::Semaphore;
use tower_claim::store::{Grant, Owner, TookOver};
use tower_claim::transaction::BeginWithClaim;
use tower_claim::{
    Claim, Clock, Entropy, Key, Loss, Moment, NoPointOfNoReturn, Nonce, StoreError, Token,
};

pub(crate) use claim::Begun;
pub(crate) use here::{Here, Stay};

/// Where claims are made inside the user's transactions.
pub(crate) struct ClaimInside {
    pub(crate) begin: Arc<dyn BeginWithClaim>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) here: Here,
}

impl fmt::Debug for ClaimInside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimInside").finish_non_exhaustive()
    }
}

/// What a run holds its key by.
#[derive(Debug, Clone)]
pub(crate) enum Hold {
    /// A record that others see.
    Claim(Claim),
    /// The row of its open transaction.
    Inside(Inside),
}

/// A claim inside a transaction.
#[derive(Debug, Clone)]
pub(crate) struct Inside {
    pub(crate) owner: Owner,
    attempt: u32,
    took_over: Option<TookOver>,
    /// Until when the run may take.
    until: Moment,
    clock: Arc<dyn Clock>,
    /// Closed when the handler has answered.
    over: Arc<Semaphore>,
    /// Told of here until its transaction has ended. Not where an outcome alone is kept.
    pub(crate) stay: Option<Arc<Stay>>,
}

impl Inside {
    fn check(&self) -> Result<(), Loss> {
        if self.over.is_closed() {
            Err(Loss::Ended)
        } else if self.clock.now() >= self.until {
            Err(Loss::Expired)
        } else {
            Ok(())
        }
    }

    /// A handler may hold on to it, for as long as it likes: it has nothing of the run but its end.
    fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> {
        let (clock, until, over) = (Arc::clone(&self.clock), self.until, Arc::clone(&self.over));
        async move {
            let late = clock.sleep_until(until);
            let over = Box::pin(over.acquire());
            match select(over, late).await {
                Either::Left(_) => Loss::Ended,
                Either::Right(_) => Loss::Expired,
            }
        }
    }
}

impl Hold {
    pub(crate) fn token(&self) -> Token {
        match self {
            Self::Claim(claim) => claim.token(),
            Self::Inside(inside) => inside.owner.token,
        }
    }

    pub(crate) fn attempt(&self) -> u32 {
        match self {
            Self::Claim(claim) => claim.attempt(),
            Self::Inside(inside) => inside.attempt,
        }
    }

    pub(crate) fn took_over(&self) -> Option<&TookOver> {
        match self {
            Self::Claim(claim) => claim.took_over(),
            Self::Inside(inside) => inside.took_over.as_ref(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Loss> {
        match self {
            Self::Claim(claim) => claim.check(),
            Self::Inside(inside) => inside.check(),
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self {
            Self::Claim(claim) => claim.remaining(),
            Self::Inside(inside) => inside.until.saturating_since(inside.clock.now()),
        }
    }

    pub(crate) fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> {
        match self {
            Self::Claim(claim) => Either::Left(claim.lost()),
            Self::Inside(inside) => Either::Right(inside.lost()),
        }
    }

    pub(crate) fn progress(&self, progress: u64) {
        if let Self::Claim(claim) = self {
            claim.progress(progress);
        }
    }

    pub(crate) fn touch(&self) {
        if let Self::Claim(claim) = self {
            claim.touch();
        }
    }

    pub(crate) async fn point_of_no_return(&self) -> Result<(), NoPointOfNoReturn> {
        match self {
            Self::Claim(claim) => claim.point_of_no_return().await,
            Self::Inside(_) => Err(NoPointOfNoReturn::Store(StoreError::Unsupported(
                "a mark in a transaction that is not committed yet: nobody would find it after a crash. Claim \
                 outside of the transaction",
            ))),
        }
    }

    /// Where repeats are told of a run that is inside.
    pub(crate) fn stay(&self) -> Option<Arc<Stay>> {
        match self {
            Self::Claim(_) => None,
            Self::Inside(inside) => inside.stay.clone(),
        }
    }

    /// The handler has answered.
    pub(crate) fn end(&self) {
        if let Self::Inside(inside) = self {
            inside.over.close();
        }
    }

    /// Gives the key back. What is held inside goes with its transaction, which was rolled back before.
    pub(crate) async fn release(self) {
        if let Self::Claim(claim) = self {
            let _ = claim.release().await;
        }
    }

    /// Leaves it as a crash would.
    pub(crate) fn abandon(self) {
        if let Self::Claim(claim) = self {
            claim.abandon();
        }
    }
}

impl Inside {
    fn of(grant: Grant, (key, nonce): (Key, Nonce), until: Moment, clock: Arc<dyn Clock>) -> Self {
        Self {
            owner: Owner {
                key,
                nonce,
                token: grant.token,
            },
            attempt: grant.attempt,
            took_over: grant.took_over,
            until,
            clock,
            over: Arc::new(Semaphore::new(0)),
            stay: None,
        }
    }
}
