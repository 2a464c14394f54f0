//! A run whose handler works in a transaction of the user's: its outcome is committed with the work.

use std::time::Duration;

use tower_claim::store::{FinishRequest, Owner, Release, ReleaseRequest, State, Value};
use tower_claim::transaction::{
    CommitError, Conflict, NotLent, OpenTransaction, StillLent, TransactionSlot,
};
use tower_claim::{Code, Finishing, Refusal, Settled as InTheEnd, Token};

use crate::inside::{Begun, Hold};
use crate::open::{OpenRun, Settled};

/// How long between two looks at a commit that was not answered.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How a claim ends in its transaction.
enum Ending {
    /// It was made outside: the keeper knows how to find out, and gives back what was not committed.
    Outside(Finishing),
    /// It was made inside, and is gone with it.
    Inside(Owner),
}

impl Ending {
    fn owner(&self) -> Owner {
        match self {
            Self::Outside(finishing) => finishing.owner(),
            Self::Inside(owner) => *owner,
        }
    }
}

impl OpenRun {
    /// Whether the handler took a transaction: then nothing of its answer may go out before the commit.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction.is_free() == Err(NotLent::Second)
    }

    /// Rolls back what the handler wrote, if it wrote in a transaction. Its answer may be an outcome all the
    /// same: a refusal that is kept.
    ///
    /// # Errors
    ///
    /// [`StillLent`]: its transaction is open, and will not be committed. So is its key then, where that was claimed
    /// inside. Whoever ends the run is told so again.
    pub(crate) async fn roll_back(&self) -> Result<(), StillLent> {
        if let Some(transaction) = self.transaction.take()? {
            // Where the server does not answer, the drop closes the connection: it rolls back by itself.
            self.shared.in_time(transaction.roll_back()).await;
        }
        Ok(())
    }

    /// Commits the outcome with the work.
    pub(crate) async fn commit(
        &self,
        hold: Hold,
        transaction: Box<dyn OpenTransaction>,
        value: Value,
    ) -> Settled {
        let ending = match hold {
            Hold::Inside(inside) => Ending::Inside(inside.owner),
            Hold::Claim(claim) => match claim.begin_finish() {
                // A run before this one crashed: its effects are not rolled back with the rows of this one.
                Ok(finishing) if self.run.must_lapse() => Ending::Outside(finishing.or_lapse()),
                Ok(finishing) => Ending::Outside(finishing),
                Err(_) => {
                    self.shared.in_time(transaction.roll_back()).await;
                    return self.rolled_back();
                }
            },
        };
        let finish = FinishRequest {
            owner: ending.owner(),
            value,
            keep: self.shared.retention,
        };
        let began = self.shared.clock().now();
        let committed = self.shared.in_time(transaction.commit_with(finish)).await;
        let is_ok = matches!(committed, Some(Ok(()) | Err(CommitError::Lost)));
        self.shared.store_was_called("commit", began, is_ok);
        match committed {
            Some(Ok(())) => {
                if let Ending::Outside(finishing) = ending {
                    finishing.committed();
                }
                Settled::Stands
            }
            Some(Err(CommitError::Lost)) => {
                self.is_superseded();
                Settled::Superseded
            }
            Some(Err(CommitError::CameSecond(error))) => {
                self.was_not_committed(&*error);
                let settled = match ending {
                    // The server has said so: nothing is left to be asked about.
                    Ending::Inside(_) => self.rolled_back(),
                    outside => self.is_over(outside).await,
                };
                match settled {
                    Settled::RolledBack => Settled::CameSecond,
                    settled => settled,
                }
            }
            Some(Err(CommitError::RolledBack(error))) => {
                self.was_not_committed(&*error);
                self.is_over(ending).await
            }
            Some(Err(CommitError::Ended)) => {
                self.was_not_committed(&CommitError::Ended);
                self.was_ended(ending)
            }
            Some(Err(_)) | None => self.ask(ending).await,
        }
    }

    /// Keeps the outcome of a run whose claim was inside of a transaction that was rolled back: the answer alone, in
    /// another one that claims the key anew.
    pub(crate) async fn keep_alone(&self, value: Value) -> Settled {
        let Some(inside) = &self.shared.inside else {
            return Settled::RolledBack;
        };
        let slot = TransactionSlot::new();
        let claimed = self
            .shared
            .claim_inside(inside, (self.key, Token::ZERO), self.print, &slot)
            .await;
        match claimed {
            Ok(Begun::Granted(hold)) => match slot.take() {
                Ok(Some(transaction)) => self.commit(Hold::Inside(hold), transaction, value).await,
                _ => self.rolled_back(),
            },
            // A repeat ran in between, or runs. Nothing of this run is left, so there is one answer: the other's.
            Ok(Begun::Refused(_)) => {
                self.is_superseded();
                Settled::Superseded
            }
            Err(error) => {
                self.was_not_committed(&error);
                self.rolled_back()
            }
        }
    }

    /// As a crash between rows and answer leaves it: given back, the key would be free for a repeat that knows of
    /// nothing, beside rows that may be there.
    fn was_ended(&self, ending: Ending) -> Settled {
        if let Ending::Outside(finishing) = ending {
            finishing.abandon();
        }
        if self.run.would_be_unknown() {
            self.shared.counters.meter.outcome_unknown(self.name());
            Settled::Unknown
        } else {
            Settled::Ended
        }
    }

    fn was_not_committed(&self, error: &(dyn std::error::Error + 'static)) {
        self.shared.counters.meter.not_committed(self.name(), error);
    }

    /// Nothing was committed. The key is free when this has answered, or lapses: of a connection that broke the server may
    /// not know yet that its transaction is over.
    async fn is_over(&self, ending: Ending) -> Settled {
        match ending {
            Ending::Outside(_) if self.run.must_lapse() => self.rolled_back(),
            ending => self.ask(ending).await,
        }
    }

    /// The record tells. Where nothing was committed, the key is free when this has answered, or lapses.
    async fn ask(&self, ending: Ending) -> Settled {
        let settled = match ending {
            Ending::Outside(finishing) => finishing.in_doubt().await.ok(),
            Ending::Inside(owner) => self.ask_inside(owner).await,
        };
        match settled {
            Some(InTheEnd::Committed) => Settled::Stands,
            Some(InTheEnd::RolledBack) => self.rolled_back(),
            _ => {
                self.shared.counters.meter.outcome_unknown(self.name());
                Settled::Unknown
            }
        }
    }

    /// Asks by a release over another connection: one that is answered has seen the end of the transaction. `None`
    /// where it has not ended within one lease.
    async fn ask_inside(&self, owner: Owner) -> Option<InTheEnd> {
        let (clock, store) = (self.shared.clock(), self.shared.keeper.store());
        let until = clock.now() + self.shared.terms.lease();
        loop {
            let release = store.dyn_release(ReleaseRequest {
                key: owner.key,
                nonce: owner.nonce,
                token: Some(owner.token),
                not_after: store.dyn_now().saturating_add(self.shared.terms.lease()),
            });
            let seen = match self.shared.in_time(release).await? {
                Ok(Release::Released) => return Some(InTheEnd::RolledBack),
                Ok(_) => self.shared.in_time(store.dyn_peek(owner.key)).await?,
                Err(error) => Err(error),
            };
            if let Ok(record) = seen {
                let is_ours = record.is_some_and(|record| {
                    record.state == State::Done
                        && record.nonce == owner.nonce
                        && record.token == owner.token
                });
                return Some(if is_ours {
                    InTheEnd::Committed
                } else {
                    InTheEnd::RolledBack
                });
            }
            let next = clock.now() + LOOK_AGAIN;
            if next >= until {
                return None;
            }
            clock.sleep_until(next).await;
        }
    }

    /// Something that the handler left behind has its transaction: nobody can commit that any more.
    pub(crate) async fn lost_sight(&self, hold: Hold, why: StillLent) -> Settled {
        self.tell_of(why);
        if self.run.must_lapse() {
            hold.abandon();
        } else {
            hold.release().await;
        }
        self.rolled_back()
    }

    /// A mistake of the program, which its people are to hear of.
    pub(crate) fn tell_of(&self, why: StillLent) {
        let meter = &self.shared.counters.meter;
        meter.transaction_left_behind(self.name(), &why);
    }

    /// The rows are gone; but past the point of no return there is more than rows.
    fn rolled_back(&self) -> Settled {
        self.is_given_back();
        if self.run.would_be_unknown() {
            Settled::Unknown
        } else {
            Settled::RolledBack
        }
    }
}

/// What the caller of a run is told that may be tried again.
pub(crate) fn came_second() -> Refusal {
    let refusal = Conflict::CameSecond.to_refusal();
    refusal.unwrap_or_else(|| Refusal::new(Code::InProgress))
}

/// What the caller of a handler is told that ended its transaction.
pub(crate) fn ended() -> Refusal {
    Refusal::new(Code::HandlerPanicked).with_detail(
        "the handler ended the transaction that it was lent: that is the layer's to do",
    )
}
