//! The handle of a granted claim.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::cleanup::Job;
use super::hold::{Hold, Keys};
use super::loss::Loss;
use super::state::{Next, Phase};
use super::terms::Terms;
use crate::store::{Owner, TookOver};
use crate::{Fingerprint, Key, Moment, Nonce, StoreError, Token};

/// The right to do one piece of work, as its owner holds it.
///
/// Clones share one hold. It ends by [`finish`](Self::finish), by [`release`](Self::release), by
/// [`abandon`](Self::abandon), by a [`Loss`], or with the last clone: dropped unfinished, the keeper is told to
/// release it. A claim that was lost is not released then: its work may still be running somewhere, so its lease
/// lapses instead.
#[derive(Clone)]
#[must_use = "dropped, the claim is released"]
pub struct Claim {
    pub(super) grip: Arc<Grip>,
}

/// The last grip to go tells the keeper what is to be done.
pub(super) struct Grip {
    pub(super) hold: Arc<Hold>,
    pub(super) keeper: Arc<Inner>,
    /// The store has answered the release.
    pub(super) released: bool,
}

impl Claim {
    /// A claim just granted, by a call that was sent at `sent`.
    pub(super) fn begin(keeper: &Arc<Inner>, hold: Arc<Hold>, sent: Moment) -> Self {
        let first = hold.lock().first_beat();
        if let Next::After(pause) = first {
            keeper.desk.schedule(&hold, sent + pause);
        }
        Self {
            grip: Arc::new(Grip {
                hold,
                keeper: Arc::clone(keeper),
                released: false,
            }),
        }
    }

    pub(super) fn hold(&self) -> &Arc<Hold> {
        &self.grip.hold
    }

    /// The key; the first one of several.
    pub fn key(&self) -> Key {
        self.hold().owner().key
    }

    /// All keys, sorted.
    pub fn keys(&self) -> &[Key] {
        self.hold().keys.as_slice()
    }

    /// The fencing token: send it along with each write.
    pub fn token(&self) -> Token {
        self.hold().token
    }

    /// The nonce of this grant. A guard compares it beside the token.
    pub fn nonce(&self) -> Nonce {
        self.hold().nonce
    }

    /// Key, nonce and token together, for the engine's own calls.
    pub fn owner(&self) -> Owner {
        self.hold().owner()
    }

    /// 1 for the first owner of a piece of work, one more for each takeover; of several keys, that of the
    /// one taken over most often.
    pub fn attempt(&self) -> u32 {
        self.hold().attempt
    }

    /// The lapsed owner before this one, if the work was taken over. `None` also where the answer that told
    /// of it was lost: [`attempt`](Self::attempt) says even then whether there was one.
    pub fn took_over(&self) -> Option<&TookOver> {
        self.hold().took_over.as_ref()
    }

    /// Whether the owner may still believe that it holds. Compares clocks itself, because timers stand
    /// still in suspend; costs no store trip. Call it before each side effect, and fence the effect: the
    /// process may be paused right after.
    ///
    /// # Errors
    ///
    /// Why not; [`Loss::Ended`] from the moment a finish or release is first sent.
    pub fn check(&self) -> Result<(), Loss> {
        self.hold().lock().check(self.grip.keeper.clock.now())
    }

    /// How long until the stop point, if nothing is renewed; zero past it.
    pub fn remaining(&self) -> Duration {
        let end = self.hold().lock().ends_at();
        end.saturating_since(self.grip.keeper.clock.now())
    }

    /// Resolves when the hold is lost, or at the stop point before it can lapse; also when it is finished
    /// or released ([`Loss::Ended`]). Does not keep the claim alive.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> {
        let (hold, clock) = (Arc::clone(self.hold()), Arc::clone(&self.grip.keeper.clock));
        async move {
            hold.until_or_end(&*clock, |state, now| state.check(now).err())
                .await
        }
    }

    /// Resolves when an operator asks the owner to stop, as a beat has learnt (never without renewal); and
    /// when the hold is over: either way it is time to stop. Does not keep the claim alive.
    pub fn revoke_requested(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let (hold, clock) = (Arc::clone(self.hold()), Arc::clone(&self.grip.keeper.clock));
        async move {
            hold.until_or_end(&*clock, |state, now| {
                (state.revoke_asked() || state.check(now).is_err()).then_some(())
            })
            .await;
        }
    }

    /// The work moved, and is now at `progress`: a number of its own, carried by the next beat and handed
    /// to whoever takes over.
    pub fn progress(&self, progress: u64) {
        let now = self.grip.keeper.clock.now();
        self.hold().lock().moved(now, Some(progress));
    }

    /// The work moved.
    pub fn touch(&self) {
        let now = self.grip.keeper.clock.now();
        self.hold().lock().moved(now, None);
    }

    /// What a new claim in place of this one needs.
    pub(super) fn to_claim_again(&self) -> Result<(Key, Option<Fingerprint>, Terms), StoreError> {
        let hold = self.hold();
        let Keys::One(key) = hold.keys else {
            return Err(StoreError::Unsupported("healing a claim over several keys"));
        };
        if hold.lock().is_marked() {
            return Err(StoreError::Unsupported(
                "healing a claim past its point of no return",
            ));
        }
        Ok((key, hold.fingerprint, hold.terms.clone()))
    }
}

impl Drop for Grip {
    fn drop(&mut self) {
        let now = self.keeper.clock.now();
        let release = {
            let mut state = self.hold.lock();
            match state.phase {
                Phase::Open => {
                    let lost = state.check(now).is_err();
                    state.phase = Phase::Releasing;
                    !lost
                }
                Phase::Releasing => !self.released,
                // Whoever sent the finish sees it through.
                Phase::Finishing | Phase::Abandoned => false,
            }
        };
        self.keeper.desk.unschedule(&self.hold);
        self.hold.changed.notify_waiters();
        if release {
            self.keeper.desk.leave(Job::Release(Arc::clone(&self.hold)));
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("hold", self.hold())
            .finish_non_exhaustive()
    }
}
