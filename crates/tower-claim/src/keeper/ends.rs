//! How a claim ends: the point of no return, finish, release, abandoned.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::claim::Claim;
use super::cleanup::{Job, UnsettledFinish};
use super::hold::Keys;
use super::loss::Loss;
use super::state::Phase;
use crate::StoreError;
use crate::store::{Finish, FinishRequest, LostReason, Marked, Release, Value};
use crate::wait::repeat;

/// What [`Claim::release`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandBack {
    /// The store answered.
    Answered(Release),
    /// Another clone lives: the hold is released when the last one is gone.
    HeldByClone,
    /// Nothing was sent: a finish was sent before, or another owner has the key.
    Nothing,
}

/// Why there is no point of no return here: **do not go on**.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoPointOfNoReturn {
    /// The claim is lost.
    Lost(Loss),
    /// The engine may forget what it answered, so a mark would promise nothing; nothing was sent. See
    /// [`TermsBuilder::trust_forgetful_store`](super::TermsBuilder::trust_forgetful_store).
    Forgetful {
        /// The engine's name.
        engine: &'static str,
    },
    /// The store did not say yes. The mark may be in the record all the same.
    Store(StoreError),
}

impl fmt::Display for NoPointOfNoReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(_) => f.write_str("no point of no return: the claim is lost"),
            Self::Forgetful { engine } => write!(
                f,
                "no point of no return: `{engine}` may forget what it answered. Tell the store that it does not \
                 (Redis: `durable_single_node()`), take another, or say `trust_forgetful_store()`"
            ),
            Self::Store(_) => f.write_str("no point of no return: the store did not say yes"),
        }
    }
}

impl std::error::Error for NoPointOfNoReturn {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost(loss) => Some(loss),
            Self::Store(error) => Some(error),
            Self::Forgetful { .. } => None,
        }
    }
}

impl Claim {
    /// Writes the point of no return into the record: from here on the work is never run again by
    /// another, and a crash leaves its outcome unknown. **Go on only after `Ok`.**
    ///
    /// # Errors
    ///
    /// [`NoPointOfNoReturn`]. Where the engine may forget, or the claim is over several keys, nothing was
    /// sent.
    ///
    /// # Cancellation
    ///
    /// The mark may be in the record all the same: a release then leaves the outcome unknown.
    pub async fn point_of_no_return(&self) -> Result<(), NoPointOfNoReturn> {
        let (hold, keeper) = (self.hold(), &self.grip.keeper);
        if matches!(hold.keys, Keys::Many(_)) {
            return Err(NoPointOfNoReturn::Store(StoreError::Unsupported(
                "a point of no return over several keys",
            )));
        }
        let engine = keeper.store.dyn_capabilities();
        if !hold.terms.trusts(&engine) {
            return Err(NoPointOfNoReturn::Forgetful {
                engine: engine.engine,
            });
        }
        self.check().map_err(NoPointOfNoReturn::Lost)?;
        if hold.lock().is_marked() {
            return Ok(());
        }
        let until = keeper.clock.now() + hold.timing.attempt;
        let call = || keeper.store.dyn_mark(self.owner());
        let marked = repeat(&*keeper.clock, hold.timing, until, call)
            .await
            .map_err(NoPointOfNoReturn::Store)?;
        match marked {
            Marked::Marked => hold.lock().told_marked().map_err(NoPointOfNoReturn::Lost),
            Marked::Lost(reason) => {
                let loss = {
                    let mut state = hold.lock();
                    state.told_lost(reason);
                    state.loss()
                };
                hold.changed.notify_waiters();
                let told = match reason {
                    LostReason::Superseded => Loss::Stolen,
                    LostReason::Broken => Loss::Broken,
                    LostReason::Lapsed => Loss::Expired,
                };
                Err(NoPointOfNoReturn::Lost(loss.unwrap_or(told)))
            }
        }
    }

    /// Ends the work with a result, which is kept for `keep`. The token decides, not time: a claim that
    /// was lost by the clock may still be finished, if nobody took over.
    ///
    /// In doubt the call is repeated with the same value: here until the attempt timeout, then by the
    /// keeper in the background, for at most half of `keep` and one lease.
    ///
    /// # Errors
    ///
    /// The store's, after the repeats here; one that [is retryable](StoreError::is_retryable) is still
    /// repeated by the keeper. [`StoreError::Unsupported`], and nothing is sent, for a second finish, one
    /// after a release, and a claim over several keys.
    ///
    /// # Cancellation
    ///
    /// Dropped before its first poll, nothing happened. Dropped later, the keeper sees the finish through
    /// as above. Either way [`check`](Self::check) tells the truth.
    pub async fn finish(&self, value: Value, keep: Duration) -> Result<Finish, StoreError> {
        self.end_with_finish()?;
        let (hold, keeper) = (self.hold(), &self.grip.keeper);
        let sent = keeper.clock.now();
        let mut finish = Unsettled {
            keeper,
            open: true,
            finish: UnsettledFinish {
                request: FinishRequest {
                    owner: self.owner(),
                    value,
                    keep,
                },
                until: hold.timing.finish_until(sent, keep),
                timing: hold.timing,
            },
        };
        let answered = repeat(&*keeper.clock, hold.timing, finish.finish.until, || {
            keeper.store.dyn_finish(finish.finish.request.clone())
        })
        .await;
        finish.open = matches!(&answered, Err(error) if error.is_retryable());
        answered
    }

    /// Gives the key back without a result. When this was the last clone: the beat is stopped, one under
    /// way is waited for, and the store answers; after that no call with this nonce is sent again. A
    /// claim past its point of no return becomes unknown.
    ///
    /// # Errors
    ///
    /// The store's, after repeats until the attempt timeout; the keeper goes on with the release for one
    /// lease.
    ///
    /// # Cancellation
    ///
    /// Dropped at any await, the keeper releases.
    pub async fn release(self) -> Result<HandBack, StoreError> {
        let Some(mut grip) = Arc::into_inner(self.grip) else {
            return Ok(HandBack::HeldByClone);
        };
        let (hold, keeper) = (Arc::clone(&grip.hold), Arc::clone(&grip.keeper));
        {
            let mut state = hold.lock();
            let nothing_left = matches!(state.loss(), Some(Loss::Stolen | Loss::Broken));
            if state.phase != Phase::Open || nothing_left {
                return Ok(HandBack::Nothing);
            }
            state.phase = Phase::Releasing;
        }
        keeper.desk.unschedule(&hold);
        hold.changed.notify_waiters();
        // A beat that the store sees after the release must find nothing to renew, and none may be sent.
        hold.no_beat_under_way(&*keeper.clock).await;

        let until = keeper.clock.now() + hold.timing.attempt;
        let mut last = Release::Released;
        match &keeper.many {
            Some(store) if matches!(hold.keys, Keys::Many(_)) => {
                let requests: Vec<_> = hold.releases().collect();
                let call = || store.dyn_release_many(&requests);
                for answer in repeat(&*keeper.clock, hold.timing, until, call).await? {
                    last = worse(last, answer);
                }
            }
            _ => {
                for request in hold.releases() {
                    let call = || keeper.store.dyn_release(request);
                    let answer = repeat(&*keeper.clock, hold.timing, until, call).await?;
                    last = worse(last, answer);
                }
            }
        }
        grip.released = true;
        Ok(HandBack::Answered(last))
    }
}

impl Claim {
    /// Lets the claim lapse, for all clones, as if its owner had crashed: it is renewed no more, and nothing is sent.
    /// For work whose end nobody will see, and whose effects may be there already: a release would free the key as
    /// if nothing had been done. [`check`](Self::check) is false from here on.
    ///
    /// The store answers as after a crash: the key is busy until the lease is over; then it can be taken over, by one
    /// who is told of this claim; under [`LapsePolicy::Hold`](crate::LapsePolicy::Hold) or past the point of no return
    /// its outcome is unknown.
    ///
    /// A finish or release that was sent before goes on as if this had not been called.
    pub fn abandon(self) {
        let hold = self.hold();
        {
            let mut state = hold.lock();
            if state.phase != Phase::Open {
                return;
            }
            state.phase = Phase::Abandoned;
        }
        self.grip.keeper.desk.unschedule(hold);
        hold.changed.notify_waiters();
    }
}

fn worse(a: Release, b: Release) -> Release {
    match (a, b) {
        (Release::Lost, _) | (_, Release::Lost) => Release::Lost,
        (Release::Already, _) | (_, Release::Already) => Release::Already,
        (Release::Released, Release::Released) => Release::Released,
    }
}

/// A finish that was sent: dropped open, the keeper sees it through.
struct Unsettled<'a> {
    keeper: &'a Inner,
    open: bool,
    finish: UnsettledFinish,
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        if self.open && self.keeper.clock.now() < self.finish.until {
            self.keeper.desk.leave(Job::Finish(self.finish.clone()));
        }
    }
}
