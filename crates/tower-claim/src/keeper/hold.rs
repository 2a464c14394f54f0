//! What a claim's clones, the keeper and the waiting share of one hold.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::state::HoldState;
use super::terms::Terms;
use super::timing::Timing;
use crate::store::{Beat, Owner, ReleaseRequest, StoreTime, TookOver};
use crate::wait::within;
use crate::{Clock, Fingerprint, Key, Moment, Nonce, Token};

/// The keys of one hold: one nearly always.
#[derive(Debug, Clone)]
pub(super) enum Keys {
    One(Key),
    Many(Arc<[Key]>),
}

impl Keys {
    pub(super) fn as_slice(&self) -> &[Key] {
        match self {
            Keys::One(key) => std::slice::from_ref(key),
            Keys::Many(keys) => keys,
        }
    }
}

pub(super) struct Hold {
    pub(super) keys: Keys,
    pub(super) nonce: Nonce,
    pub(super) token: Token,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) terms: Terms,
    pub(super) timing: Timing,
    pub(super) attempt: u32,
    pub(super) took_over: Option<TookOver>,
    /// The `not_after` of every claim sent with this nonce.
    pub(super) not_after: StoreTime,
    pub(super) state: Mutex<HoldState>,
    /// Rung when the hold is lost or ended, when a revoke was asked, and when a beat is over.
    pub(super) changed: Notify,
}

impl Hold {
    pub(super) fn lock(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of the key; of the first one of several.
    pub(super) fn owner(&self) -> Owner {
        let key = match &self.keys {
            Keys::One(key) => *key,
            Keys::Many(keys) => keys[0],
        };
        Owner {
            key,
            nonce: self.nonce,
            token: self.token,
        }
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.keys.as_slice().iter().map(|&key| Owner {
            key,
            nonce: self.nonce,
            token: self.token,
        })
    }

    pub(super) fn beats(&self, progress: u64) -> impl Iterator<Item = Beat> + '_ {
        self.owners().map(move |owner| Beat { owner, progress })
    }

    pub(super) fn releases(&self) -> impl Iterator<Item = ReleaseRequest> + '_ {
        self.owners().map(|owner| ReleaseRequest {
            key: owner.key,
            nonce: owner.nonce,
            token: Some(owner.token),
            not_after: self.not_after,
        })
    }

    /// Ready when no beat of this hold is under way. A beat ends by its own attempt timeout; the wait for
    /// it ends at twice that, should its thread be stuck inside the store.
    pub(super) async fn no_beat_under_way(&self, clock: &dyn Clock) {
        let over = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                // Registered before looking: a change between the look and the wait is not missed.
                changed.as_mut().enable();
                if !self.lock().is_beating() {
                    return;
                }
                changed.await;
            }
        };
        let _ = within(clock, clock.now() + self.timing.attempt * 2, over).await;
    }

    /// Waits for a change after which `look` sees something, and looks again whenever the hold's end has
    /// come, by the clock: this does not rely on the keeper being alive.
    pub(super) async fn until_or_end<T>(
        &self,
        clock: &dyn Clock,
        mut look: impl FnMut(&mut HoldState, Moment) -> Option<T>,
    ) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let end = {
                let mut state = self.lock();
                if let Some(seen) = look(&mut state, clock.now()) {
                    return seen;
                }
                state.ends_at()
            };
            let _ = within(clock, end, changed).await;
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("keys", &self.keys.as_slice())
            .field("token", &self.token)
            .field("state", &*self.lock())
            .finish_non_exhaustive()
    }
}
