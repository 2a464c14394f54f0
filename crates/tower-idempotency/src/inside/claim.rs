//! The claim by the first statement of a transaction.

use std::sync::Arc;

use futures_util::future::{BoxFuture, Either, select};
use tower_claim::store::{self, ClaimRequest};
use tower_claim::transaction::TransactionSlot;
use tower_claim::{Attempt, Fingerprint, Key, Nonce, StoreError, Token};

use super::{ClaimInside, Hold, Inside};
use crate::admit::Claimed;
use crate::shared::Shared;
use crate::way::Way;

impl Shared {
    /// Claims by the first statement of a transaction, which is then in the slot.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    ///
    /// # Cancellation
    ///
    /// A drop rolls back.
    pub(crate) async fn begin_inside(
        &self,
        inside: &ClaimInside,
        way: Way,
        print: Fingerprint,
        slot: &TransactionSlot,
    ) -> Result<Claimed, StoreError> {
        let begun = self.claim_inside(inside, (way.key, way.floor), print, slot);
        Ok(match begun.await? {
            Begun::Granted(mut hold) => {
                let stay = inside.here.enter(way.key, hold.owner.token, print);
                hold.stay = Some(Arc::new(stay));
                Claimed::Granted(Hold::Inside(hold))
            }
            Begun::Refused(attempt) => Claimed::Refused(attempt),
        })
    }

    /// Begins a transaction that claims the key.
    pub(crate) async fn claim_inside(
        &self,
        inside: &ClaimInside,
        (key, floor): (Key, Token),
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
            floor,
            // A copy that comes late cannot commit, so this bounds only how long a connection is waited for.
            not_after: store.dyn_now().saturating_add(self.terms.max_hold()),
        };
        let begun = Box::pin(inside.begin.begin_with_claim(request, slot));
        let began = self.clock().now();
        let begun = self.in_time(begun).await.unwrap_or_else(|| {
            Err(StoreError::unavailable(
                "no transaction was begun within one lease",
            ))
        });
        self.store_was_called("claim", began, begun.is_ok());
        let refused = match begun? {
            store::Claimed::Granted(grant) => {
                let clock = self.keeper.clock();
                let until = clock.now() + self.terms.max_hold();
                return Ok(Begun::Granted(Inside::of(
                    grant,
                    (key, nonce),
                    until,
                    Arc::clone(clock),
                )));
            }
            store::Claimed::Busy(busy) => Attempt::Busy(busy),
            store::Claimed::Done(done) => Attempt::Done(done),
            store::Claimed::Cooling(cooling) => Attempt::Cooling(cooling),
            store::Claimed::Unknown(unknown) => Attempt::Unknown(unknown),
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
