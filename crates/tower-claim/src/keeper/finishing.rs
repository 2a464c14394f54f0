//! A finish that runs inside a transaction of the user's.

use std::fmt;
use std::sync::Arc;

use super::Inner;
use super::claim::Claim;
use super::cleanup::Job;
use super::hold::{Hold, Keys};
use super::state::Phase;
use crate::store::{Owner, Release, ReleaseRequest, State};
use crate::wait::insist;
use crate::{Moment, StoreError};

/// A finish handed out to be run elsewhere: inside the user's own transaction, beside the rows it stands
/// for. Made by [`Claim::begin_finish`].
///
/// The engine's own call (`finish_in`) takes [`owner`](Self::owner). It is an error where the claim does not
/// stand any more, and holds the record until the transaction ends otherwise. So business rows and result are
/// committed together, or neither is, and a superseded owner commits nothing.
///
/// Then say what became of the transaction, or leave it:
///
/// | The transaction | say | and the store |
/// |---|---|---|
/// | committed | [`committed`](Self::committed) | is not asked |
/// | rolled back | drop this | gives the key back at once; past the point of no return it becomes unknown |
/// | committed, and this was dropped | nothing | refuses the release: a finished record is never touched |
/// | ended without the finish, and its rows may be there | [`abandon`](Self::abandon) | is not asked: the claim lapses, as after a crash |
/// | nobody knows: the answer to the commit is missing | [`in_doubt`](Self::in_doubt), or drop this | tells, as soon as the transaction is over |
///
/// So `tx.commit().await?` followed by `finishing.committed()` is right on every path, and a process that
/// dies in between leaves either the rows and the result, or neither and a key that is claimable after the
/// lease.
///
/// From `begin_finish` on the hold is not renewed: a beat would find its record locked by the transaction.
/// Run `finish_in` within what was [left](Claim::remaining) of the lease, or another may take over, and it
/// is an error. What runs in the transaction after it takes no more care of the lease: nobody takes over
/// a locked record. A transaction that is run again after a serialization failure uses the same `Finishing`.
///
/// ```no_run
/// # use std::time::Duration;
/// # use tower_claim::store::{Owner, Value};
/// # struct Transaction;
/// # impl Transaction {
/// #     async fn insert(&mut self, row: &str) -> Result<(), std::io::Error> { Ok(()) }
/// #     async fn commit(self) -> Result<(), std::io::Error> { Ok(()) }
/// # }
/// # async fn finish_in(tx: &mut Transaction, owner: impl Into<Owner>, value: Value, keep: Duration)
/// #     -> Result<(), std::io::Error> { Ok(()) }
/// # async fn example(claim: tower_claim::Claim, mut tx: Transaction) -> Result<(), Box<dyn std::error::Error>> {
/// tx.insert("receipt 7").await?;
/// let finishing = claim.begin_finish()?;
/// let receipt = Value::Kept("receipt 7".into());
/// finish_in(&mut tx, &finishing, receipt, Duration::from_secs(86_400)).await?; // an error where another took over
/// tx.commit().await?; // on an error `finishing` is dropped: right, whatever became of the commit
/// finishing.committed();
/// # Ok(()) }
/// ```
#[must_use = "dropped, the key is given back, unless the transaction was committed"]
pub struct Finishing {
    hold: Arc<Hold>,
    keeper: Arc<Inner>,
    /// What is not committed lapses.
    or_lapse: bool,
    settled: bool,
}

/// What became of a transaction whose commit was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settled {
    /// It was committed: the store keeps the result.
    Committed,
    /// It was rolled back, and cannot be committed any more: the store keeps no result of this claim. One
    /// whose keep has passed looks the same.
    RolledBack,
    /// The store cannot tell. Under [`LapsePolicy::Hold`](crate::LapsePolicy::Hold) the lease has lapsed
    /// without a result, and the transaction may still be open somewhere.
    Unknown,
}

impl Claim {
    /// Hands out the finish, to be run inside a transaction of yours: see [`Finishing`]. From here on the
    /// hold is not renewed, and [`check`](Self::check) is false.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`] for a second end of one claim, and for a claim over several keys.
    pub fn begin_finish(&self) -> Result<Finishing, StoreError> {
        self.end_with_finish()?;
        Ok(Finishing {
            hold: Arc::clone(self.hold()),
            keeper: Arc::clone(&self.grip.keeper),
            or_lapse: false,
            settled: false,
        })
    }

    /// No beat is sent from here on, and nobody else can end the claim.
    pub(super) fn end_with_finish(&self) -> Result<(), StoreError> {
        let hold = self.hold();
        if matches!(hold.keys, Keys::Many(_)) {
            return Err(StoreError::Unsupported("a finish over several keys"));
        }
        {
            let mut state = hold.lock();
            if state.phase != Phase::Open {
                return Err(StoreError::Unsupported("a second end of one claim"));
            }
            state.phase = Phase::Finishing;
        }
        self.grip.keeper.desk.unschedule(hold);
        hold.changed.notify_waiters();
        Ok(())
    }
}

impl Finishing {
    /// Key, nonce and token, for the engine's `finish_in`.
    pub fn owner(&self) -> Owner {
        self.hold.owner()
    }

    /// What is not committed lapses, as by [`Claim::abandon`], and is not given back: nothing is released, whatever
    /// becomes of the transaction. For a claim that [took over](Claim::took_over): given back, its key would be free,
    /// and who comes next would not know of the owner that crashed. Default: it is given back.
    ///
    /// [`in_doubt`](Self::in_doubt) only looks at the record then, and answers [`Settled::Unknown`] where it shows no
    /// result within one lease.
    ///
    /// ```no_run
    /// # fn example(claim: tower_claim::Claim) -> Result<(), tower_claim::StoreError> {
    /// let finishing = claim.begin_finish()?;
    /// let finishing = if claim.attempt() > 1 { finishing.or_lapse() } else { finishing };
    /// # drop(finishing);
    /// # Ok(()) }
    /// ```
    pub fn or_lapse(mut self) -> Self {
        self.or_lapse = true;
        self
    }

    /// The transaction was committed with the finish in it. Nothing is sent.
    pub fn committed(mut self) {
        self.settled = true;
    }

    /// Leaves the key as a crash would: nothing is sent, and the claim lapses when its lease is over. For a transaction
    /// that ended without the finish, and whose rows may be there all the same.
    pub fn abandon(mut self) {
        self.settled = true;
    }

    /// Asks the store what became of a transaction whose commit was not answered. It does so by a release:
    /// one that is answered has seen the end of the transaction, so what it says is final. A rolled back
    /// claim is given back by it, unless it is [to lapse](Self::or_lapse).
    ///
    /// Takes as long as the transaction stays open, one lease at most.
    ///
    /// # Errors
    ///
    /// [`StoreError::Ambiguous`] when there was no answer within one lease: the keeper tries for one more.
    ///
    /// # Cancellation
    ///
    /// As a drop: the keeper gives the key back, unless the transaction was committed.
    pub async fn in_doubt(mut self) -> Result<Settled, StoreError> {
        let (clock, timing) = (&*self.keeper.clock, self.hold.timing);
        let until = clock.now() + timing.lease;
        if self.or_lapse {
            return self.look(until).await;
        }
        self.hold.no_beat_under_way(clock).await;
        let Owner { key, nonce, token } = self.owner();
        let request = ReleaseRequest {
            key,
            nonce,
            token: Some(token),
            not_after: self.hold.not_after,
        };
        let call = || self.keeper.store.dyn_release(request);
        let answer = insist(clock, timing, until, call).await;
        let settled = match answer.ok_or_else(still_in_doubt)? {
            Release::Released => Settled::RolledBack,
            Release::Already | Release::Lost => self.look(until).await?,
        };
        self.settled = true;
        Ok(settled)
    }

    /// What the record says of a hold that was not there to be released.
    async fn look(&self, until: Moment) -> Result<Settled, StoreError> {
        let (clock, timing) = (&*self.keeper.clock, self.hold.timing);
        let Owner { key, nonce, token } = self.owner();
        loop {
            let call = || self.keeper.store.dyn_peek(key);
            let record = insist(clock, timing, until, call).await;
            let Some(record) = record.ok_or_else(still_in_doubt)? else {
                return Ok(Settled::RolledBack);
            };
            if record.nonce != nonce || record.token != token {
                return Ok(Settled::RolledBack);
            }
            match record.state {
                State::Done => return Ok(Settled::Committed),
                State::Free => return Ok(Settled::RolledBack),
                // Lapsed under Hold: the finish of an open transaction still counts.
                State::Unknown | State::Held => {}
            }
            let next = clock.now() + timing.attempt / 4;
            if next >= until {
                return Ok(Settled::Unknown);
            }
            clock.sleep_until(next).await;
        }
    }
}

fn still_in_doubt() -> StoreError {
    StoreError::ambiguous("the transaction was not seen to end within one lease")
}

impl From<&Finishing> for Owner {
    fn from(finishing: &Finishing) -> Self {
        finishing.owner()
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        if !self.settled && !self.or_lapse {
            let job = Job::Release(Arc::clone(&self.hold));
            self.keeper.desk.leave(job);
        }
    }
}

impl fmt::Debug for Finishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finishing")
            .field("hold", &self.hold)
            .finish_non_exhaustive()
    }
}
