//! A run whose claim is to be settled.

use std::sync::Arc;
use std::time::Duration;

use http::response::Parts;
use http::{HeaderMap, Method};
use tokio::sync::OwnedSemaphorePermit;
use tower_claim::store::{Finish, Value};
use tower_claim::transaction::TransactionSlot;
use tower_claim::{Claim, Code, Fingerprint, Key, Refusal};

use crate::accepts::Accepts;
use crate::body::UploadFate;
use crate::existing::Asked;
use crate::inside::{Hold, Stay};
use crate::quota::Seat;
use crate::record::{self, Head, Record};
use crate::reply::{Reply, Responder, Status};
use crate::run::IdempotentRun;
use crate::running::RunSeat;
use crate::shared::Shared;
use crate::stage::Row;
use crate::telemetry::RunName;
use crate::transaction::{came_second, ended};

/// A run whose claim is to be settled: finished with an outcome, or released without one. Dropped
/// unsettled (its task was killed) it lapses, once its handler was called, and where a run before it crashed.
pub(crate) struct OpenRun {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: Key,
    pub(crate) print: Fingerprint,
    pub(crate) run: IdempotentRun,
    pub(crate) method: Method,
    pub(crate) transaction: TransactionSlot,
    /// Where its claim is inside of its transaction.
    pub(crate) stay: Option<Arc<Stay>>,
    /// Where a hook may want to know.
    pub(crate) asked: Option<Asked>,
    /// For the answer of another run.
    pub(crate) accepts: Accepts,
    pub(crate) upload: UploadFate,
    pub(crate) responder: Responder,
    pub(crate) row: Row,
    /// When the first run began, since the Unix epoch.
    pub(crate) first_seen: Duration,
    /// The handler was called: its effects may be there.
    pub(crate) begun: bool,
    /// Where tenants have quotas.
    pub(crate) seat: Option<Seat>,
    pub(crate) _run: RunSeat,
    pub(crate) _permit: OwnedSemaphorePermit,
}

/// What became of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The answer stands: its outcome is kept, or it was none; or the store did not say, and the keeper
    /// goes on trying.
    Stands,
    /// Another run had taken over.
    Superseded,
    /// The handler's transaction was not committed, and will not be: nothing happened.
    RolledBack,
    /// The same, and another transaction was in its way: run again it may be.
    CameSecond,
    /// The handler ended its transaction itself: it made a mistake, and its rows are there or not.
    Ended,
    /// Nobody knows whether the handler's transaction was committed.
    Unknown,
}

impl OpenRun {
    /// The handler is called now.
    pub(crate) fn begins(&mut self) {
        self.begun = true;
        let (counters, name) = (&self.shared.counters, self.name());
        counters.runs.add_of(name);
        if self.status() == Status::TakenOver {
            counters.takeovers.add_of(name);
            let before = self.run.took_over();
            counters.meter.took_over(name, self.run.attempt(), before);
        }
    }

    /// For those who look for it in a log.
    pub(crate) fn name(&self) -> RunName {
        RunName {
            key: self.key,
            token: self.run.token(),
        }
    }

    /// Another run had taken over.
    pub(crate) fn is_superseded(&self) {
        let counters = &self.shared.counters;
        counters.superseded.add_of(self.name());
        counters.meter.superseded(self.name());
    }

    /// Its key is given back; behind its mark that leaves its outcome unknown.
    pub(crate) fn is_given_back(&self) {
        let counters = &self.shared.counters;
        counters.released.add_of(self.name());
        if self.run.would_be_unknown() {
            counters.meter.outcome_unknown(self.name());
        }
    }

    /// Keeps the outcome. Its response may go out when this has answered.
    pub(crate) async fn finish(&self, record: Record) -> Settled {
        let settled = self.keep(record).await;
        self.leave();
        settled
    }

    /// Gives the key back. After the point of no return its outcome becomes unknown.
    pub(crate) async fn release(&self) -> Settled {
        self.give_back().await;
        self.leave();
        Settled::Stands
    }

    /// Its transaction has ended. Who repeats the request right after its answer must not be told that it runs.
    fn leave(&self) {
        if let Some(stay) = &self.stay {
            stay.leave();
        }
    }

    async fn keep(&self, record: Record) -> Settled {
        let counters = &self.shared.counters;
        let transaction = self.transaction.take();
        let Some(hold) = self.run.end() else {
            return Settled::Stands;
        };
        let was_whole = record.is_whole;
        let (value, is_whole) = self.shared.seal_up(self.key, record);
        if value == Value::Tombstone {
            counters.meter.cannot_be_kept(self.name());
        }
        let (value, fits) = match &self.seat {
            Some(seat) => seat.fit(value),
            None => (value, true),
        };
        let keep = || {
            if is_whole && fits {
                counters.kept.add_of(self.name());
                return;
            }
            counters.tombstones.add_of(self.name());
            let why = match (was_whole, fits) {
                (false, _) => "by-rule",
                (true, false) => "quota",
                (true, true) => "unfit",
            };
            counters.meter.not_kept(self.name(), why);
        };
        match transaction {
            Ok(None) => {}
            Ok(Some(transaction)) => {
                let asking = self.row.asks_the_store("commit");
                let settled = self.commit(hold, transaction, value).await;
                drop(asking);
                if settled == Settled::Stands {
                    keep();
                }
                self.count_what_stays(settled);
                return settled;
            }
            Err(still_lent) => {
                let settled = self.lost_sight(hold, still_lent).await;
                self.count_what_stays(settled);
                return settled;
            }
        }
        let Hold::Claim(claim) = hold else {
            let asking = self.row.asks_the_store("commit");
            let settled = self.keep_alone(value).await;
            drop(asking);
            if settled == Settled::Stands {
                keep();
            }
            self.count_what_stays(settled);
            return settled;
        };
        let asking = self.row.asks_the_store("finish");
        let finished = claim.finish(value, self.shared.retention).await;
        drop(asking);
        match finished {
            Ok(Finish::Finished) => keep(),
            Ok(_) => {
                self.is_superseded();
                self.count_what_stays(Settled::Superseded);
                return Settled::Superseded;
            }
            Err(error) => {
                // The work is done: its caller gets its answer, whatever the store is doing.
                counters.unconfirmed.add_of(self.name());
                counters.meter.unconfirmed(self.name(), &error);
            }
        }
        self.count_what_stays(Settled::Stands);
        Settled::Stands
    }

    /// What is left of the run in its tenant's account.
    fn count_what_stays(&self, settled: Settled) {
        let Some(seat) = &self.seat else {
            return;
        };
        match settled {
            Settled::Stands => seat.stays(self.shared.retention),
            Settled::Superseded => seat.superseded(),
            Settled::Unknown => seat.stays(self.shared.unfinished_keep),
            Settled::Ended => seat.stays(self.shared.terms.lease()),
            Settled::RolledBack | Settled::CameSecond => self.count_given_back(seat),
        }
    }

    /// A claim that is given back behind its mark is unknown. One that lapses has the record of the run that crashed:
    /// counted until the next run takes over, which counts it anew.
    fn count_given_back(&self, seat: &Seat) {
        if self.run.would_be_unknown() {
            seat.stays(self.shared.unfinished_keep);
        } else if self.run.must_lapse() {
            seat.stays(self.shared.terms.lease());
        } else {
            seat.given_back();
        }
    }

    async fn give_back(&self) {
        if let Err(why) = self.roll_back().await {
            self.tell_of(why);
        }
        let Some(hold) = self.run.end() else {
            return;
        };
        self.is_given_back();
        let Hold::Claim(claim) = hold else {
            self.seat
                .iter()
                .for_each(|seat| self.count_given_back(seat));
            return;
        };
        // First: a record that is withdrawn, and then free, would tell nobody of the run that crashed. Where the mark is
        // in the record all the same, the outcome is unknown.
        if self.run.must_lapse() {
            claim.abandon();
            self.seat
                .iter()
                .for_each(|seat| self.count_given_back(seat));
        } else if self.run.mark_is_in_doubt() {
            self.withdraw(claim).await;
            let keep = self.shared.terms.lease();
            self.seat.iter().for_each(|seat| seat.stays(keep));
        } else {
            let _ = claim.release().await;
            self.seat
                .iter()
                .for_each(|seat| self.count_given_back(seat));
        }
    }

    /// Nobody can tell what a run before this one came to: that is for an operator now.
    pub(crate) async fn give_up(&self) {
        if let Some(Hold::Claim(claim)) = self.run.end() {
            self.shared.counters.meter.outcome_unknown(self.name());
            // A claim that is given back behind its mark is unknown. Without the mark it is free, and asks again.
            let _ = claim.point_of_no_return().await;
            let _ = claim.release().await;
            let keep = self.shared.unfinished_keep;
            self.seat.iter().for_each(|seat| seat.stays(keep));
        }
    }

    /// The store did not say yes to the mark, so the work was not begun; but the mark may have arrived, or be under way
    /// yet. A marked claim that is released becomes unknown, which would lock the key for a day though nothing was
    /// done. Finished with a short keep, it is free after a lease.
    async fn withdraw(&self, claim: Claim) {
        let keep = self.shared.terms.lease();
        let _ = claim.finish(record::withdrawn(), keep).await;
    }

    /// The handler panicked, or its body did.
    pub(crate) async fn panicked(&self) -> Settled {
        let counters = &self.shared.counters;
        counters.panics.add_of(self.name());
        counters.meter.panicked(self.name());
        self.row.panicked();
        self.release().await
    }

    /// What the caller is told instead of the answer, if that does not stand.
    pub(crate) async fn instead(&self, settled: Settled) -> Option<Reply> {
        match settled {
            Settled::Stands => None,
            Settled::Superseded => Some(self.after_loss().await),
            Settled::RolledBack => {
                let refusal = Refusal::new(Code::StoreUnavailable).with_detail(
                    "nothing was done: the transaction of this request was not committed",
                );
                Some(self.shared.refused(refusal).into())
            }
            Settled::CameSecond => Some(self.shared.refused(came_second()).into()),
            Settled::Ended => Some(self.shared.refused(ended()).into()),
            Settled::Unknown => Some(self.shared.unknown()),
        }
    }

    /// What the record says to the caller of a run that is not the one that counts.
    pub(crate) async fn after_loss(&self) -> Reply {
        let reply = self.shared.answer_after_loss(self.key, self.print).await;
        let asked = self.asked.as_ref().map(|asked| asked.parts.clone());
        let reply = self.shared.of_its_upload(reply, self.upload.digest());
        let reply = reply.first_seen_by(Some(self.first_seen));
        self.shared.tell(reply, &self.accepts, asked).await
    }

    /// The first half of the record of this answer.
    pub(crate) fn head(&self, answer: &Parts) -> Head {
        let rules = &self.shared.headers;
        Head::new(answer.status, &answer.headers, rules, self.first_seen).of_upload(&self.upload)
    }

    /// How this answer came about.
    pub(crate) fn status(&self) -> Status {
        if self.run.attempt() > 1 {
            Status::TakenOver
        } else {
            Status::Fresh
        }
    }

    pub(crate) fn is_grpc(&self, headers: &HeaderMap) -> bool {
        self.responder.is_grpc() || tower_claim::http::is_grpc(headers)
    }
}

/// Unsettled, where the runtime shuts down or a callback panicked. A clone of the run, or of the request's extensions,
/// that the handler left behind must keep neither the claim nor the transaction.
impl Drop for OpenRun {
    fn drop(&mut self) {
        // Dropped, it is rolled back.
        let _ = self.transaction.take();
        let Some(hold) = self.run.end() else {
            return;
        };
        if self.begun || self.run.must_lapse() {
            // Given back, the key would be free for a repeat that knows of nothing: the keeper, on a thread of its
            // own, outlives the runtime. A process that shuts down in the midst of a run must leave what a crash does.
            hold.abandon();
            self.shared.counters.meter.cut_off(self.name());
        }
    }
}
