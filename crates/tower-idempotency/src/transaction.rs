//! A run whose handler works in a transaction of the user's: its outcome is committed with the work.

use std::pin::pin;

use futures_util::future::{BoxFuture, Either, select};
use tower_claim::store::{FinishRequest, Value};
use tower_claim::transaction::{CommitError, NotLent, OpenTransaction, StillLent};
use tower_claim::{Claim, Finishing, Settled as InTheEnd};

use crate::open::{OpenRun, Settled};

impl OpenRun {
    /// Whether the handler took a transaction: then nothing of its answer may go out before the commit.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction.is_free() == Err(NotLent::Second)
    }

    /// Rolls back what the handler wrote, if it wrote in a transaction. Its answer may be an outcome all the
    /// same: a refusal that is kept.
    pub(crate) async fn roll_back(&self) {
        if let Ok(Some(transaction)) = self.transaction.take() {
            // Where the server does not answer, the drop closes the connection: it rolls back by itself.
            self.in_time(transaction.roll_back()).await;
        }
    }

    /// Commits the outcome with the work.
    pub(crate) async fn commit(
        &self,
        claim: Claim,
        transaction: Box<dyn OpenTransaction>,
        value: Value,
    ) -> Settled {
        let Ok(finishing) = claim.begin_finish() else {
            self.in_time(transaction.roll_back()).await;
            return self.rolled_back();
        };
        let finish = FinishRequest {
            owner: finishing.owner(),
            value,
            keep: self.shared.retention,
        };
        match self.in_time(transaction.commit_with(finish)).await {
            Some(Ok(())) => {
                finishing.committed();
                Settled::Stands
            }
            Some(Err(CommitError::Lost)) => {
                self.shared.counters.superseded.add();
                Settled::Superseded
            }
            Some(Err(CommitError::RolledBack(_error))) => {
                #[cfg(feature = "tracing")]
                tracing::warn!(
                    key = self.key.prefix(),
                    error = &*_error as &dyn std::error::Error,
                    "a handler's transaction was not committed",
                );
                self.ask(finishing).await
            }
            Some(Err(_)) | None => self.ask(finishing).await,
        }
    }

    /// The record tells. Where nothing was committed, the key is free when this has answered.
    async fn ask(&self, finishing: Finishing) -> Settled {
        match finishing.in_doubt().await {
            Ok(InTheEnd::Committed) => Settled::Stands,
            Ok(InTheEnd::RolledBack) => self.rolled_back(),
            Ok(_) | Err(_) => Settled::Unknown,
        }
    }

    /// Something that the handler left behind has its transaction: nobody can commit that any more.
    pub(crate) async fn lost_sight(&self, claim: Claim, _why: StillLent) -> Settled {
        #[cfg(feature = "tracing")]
        tracing::error!(key = self.key.prefix(), "{_why}");
        let _ = claim.release().await;
        self.rolled_back()
    }

    /// The rows are gone; but past the point of no return there is more than rows.
    fn rolled_back(&self) -> Settled {
        self.shared.counters.released.add();
        if self.run.would_be_unknown() {
            Settled::Unknown
        } else {
            Settled::RolledBack
        }
    }

    /// `None` where there is no answer within one lease.
    async fn in_time<T>(&self, work: BoxFuture<'static, T>) -> Option<T> {
        let clock = self.shared.clock();
        let late = clock.sleep_until(clock.now() + self.shared.terms.lease());
        match select(work, pin!(late)).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }
}
