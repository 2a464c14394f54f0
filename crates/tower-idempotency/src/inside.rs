//! A claim inside the user's transaction: its first statement, seen by nobody before the commit.
//!
//! Nothing outside keeps such a claim alive, and nothing has to: it ends with its transaction. So there is no lease
//! that could lapse, no takeover, and after a crash not even a record.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use tokio::sync::Semaphore;
use tower_claim::store::{ClaimRequest, Claimed, Grant, Owner, TookOver};
use tower_claim::transaction::{BeginWithClaim, TransactionSlot};
use tower_claim::{
    Attempt, Claim, Clock, Entropy, Fingerprint, Key, Loss, Moment, NoPointOfNoReturn, Nonce,
    StoreError, Token,
};

use crate::admit::Admitted;
use crate::quota::{Counted, Tenant};
use crate::shared::Shared;
use crate::way::Way;

/// Where claims are made inside the user's transactions.
pub(crate) struct ClaimInside {
    pub(crate) begin: Arc<dyn BeginWithClaim>,
    pub(crate) entropy: Arc<dyn Entropy>,
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
    /// Closed when the run is over.
    over: Arc<Semaphore>,
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

    async fn lost(self) -> Loss {
        let late = self.clock.sleep_until(self.until);
        let over = Box::pin(self.over.acquire());
        match select(over, late).await {
            Either::Left(_) => Loss::Ended,
            Either::Right(_) => Loss::Expired,
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
            Self::Inside(inside) => Either::Right(inside.clone().lost()),
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

    /// The run is over.
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

impl Shared {
    /// As [`admit`](Self::admit), by the first statement of a transaction that is then in the slot.
    ///
    /// # Cancellation
    ///
    /// A drop rolls back.
    pub(crate) async fn admit_inside(
        &self,
        inside: &ClaimInside,
        (key, tenant): (Key, Option<Tenant>),
        print: Fingerprint,
        slot: &TransactionSlot,
    ) -> Admitted {
        let place = match self.detached.reserve() {
            Ok(place) => place,
            Err(why) => return Admitted::Answer(self.refused(why.into()).into()),
        };
        let counted = match self.count(key, tenant).await {
            Ok(counted) => counted,
            Err(reply) => return Admitted::Answer(reply),
        };
        match self.claim_inside(inside, key, print, slot).await {
            Ok(Begun::Granted(hold)) => {
                let seat = counted.map(Counted::granted);
                Admitted::Run(Hold::Inside(hold), place, Way::begin(key), seat)
            }
            Ok(Begun::Refused(Attempt::Busy(busy))) if busy.same_fingerprint => {
                Admitted::Answer(self.in_progress(busy.expires_in))
            }
            Ok(Begun::Refused(other)) => Admitted::Answer(self.answer(key, &Ok(other))),
            Err(error) => Admitted::Answer(self.store_failed(&error)),
        }
    }

    /// Begins a transaction that claims the key.
    pub(crate) async fn claim_inside(
        &self,
        inside: &ClaimInside,
        key: Key,
        print: Fingerprint,
        slot: &TransactionSlot,
    ) -> Result<Begun, StoreError> {
        let store = self.keeper.store();
        let nonce = Nonce::draw(&*inside.entropy);
        let request = ClaimRequest {
            key,
            nonce,
            fingerprint: Some(print),
            settings: self.terms.settings(),
            floor: Token::ZERO,
            // A copy that comes late cannot commit, so this bounds only how long a connection is waited for.
            not_after: store.dyn_now().saturating_add(self.terms.max_hold()),
        };
        let begun = Box::pin(inside.begin.begin_with_claim(request, slot));
        let begun = self.in_time(begun).await.unwrap_or_else(|| {
            Err(StoreError::unavailable(
                "no transaction was begun within one lease",
            ))
        });
        let refused = match begun? {
            Claimed::Granted(grant) => {
                let clock = self.keeper.clock();
                let until = clock.now() + self.terms.max_hold();
                return Ok(Begun::Granted(Inside::of(
                    grant,
                    (key, nonce),
                    until,
                    Arc::clone(clock),
                )));
            }
            Claimed::Busy(busy) => Attempt::Busy(busy),
            Claimed::Done(done) => Attempt::Done(done),
            Claimed::Cooling(cooling) => Attempt::Cooling(cooling),
            Claimed::Unknown(unknown) => Attempt::Unknown(unknown),
            // Of a nonce that was sent once.
            _ => return Err(StoreError::unavailable("no claim was granted in time")),
        };
        Ok(Begun::Refused(refused))
    }

    /// What came of the work; `None` where there is no answer within one lease.
    pub(crate) async fn in_time<T>(&self, work: BoxFuture<'_, T>) -> Option<T> {
        let clock = self.clock();
        let late = clock.sleep_until(clock.now() + self.terms.lease());
        match select(work, late).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }
}

/// What came of a claim inside a transaction.
pub(crate) enum Begun {
    /// The transaction is in its slot.
    Granted(Inside),
    /// It is rolled back. Never [`Attempt::Granted`].
    Refused(Attempt),
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
        }
    }
}
