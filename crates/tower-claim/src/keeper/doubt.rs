//! A claim in doubt: what may have been granted, or still may be, is not left behind.

use super::Inner;
use super::cleanup::{Forget, Job};
use super::hold::Keys;
use super::timing::Timing;
use crate::store::StoreTime;
use crate::wait::answer;
use crate::{Clock, Nonce, StoreError};

/// The copies of one nonce's claim: while one may have been granted or still be under way, dropping this
/// tells the keeper to release by nonce.
pub(super) struct Doubt<'a> {
    inner: &'a Inner,
    pub(super) forget: Forget,
    /// A copy was sent and its answer is awaited.
    awaited: bool,
    /// A copy's answer is missing for good.
    missing: bool,
    /// A grant is known and nobody wants it.
    unwanted: bool,
}

impl<'a> Doubt<'a> {
    pub(super) fn new(inner: &'a Inner, keys: Keys, nonce: Nonce, timing: Timing) -> Self {
        Self {
            inner,
            forget: Forget {
                keys,
                nonce,
                not_after: StoreTime::default(),
                timing,
            },
            awaited: false,
            missing: false,
            unwanted: false,
        }
    }

    /// A copy goes out now; it changes nothing past the instant answered here.
    pub(super) fn send(&mut self) -> StoreTime {
        let not_after = self
            .inner
            .store
            .dyn_now()
            .saturating_add(self.forget.timing.attempt);
        self.missing |= self.awaited;
        self.awaited = true;
        self.forget.not_after = self.forget.not_after.max(not_after);
        not_after
    }

    pub(super) fn answered(&mut self) {
        self.awaited = false;
    }

    pub(super) fn granted(&mut self) {
        self.unwanted = true;
    }

    pub(super) fn is_open(&self) -> bool {
        self.awaited || self.missing || self.unwanted
    }

    /// Releases what may be held, before another nonce is drawn: it would find the key busy with us.
    pub(super) async fn settle(&mut self, clock: &dyn Clock) -> Result<(), StoreError> {
        if !self.is_open() {
            return Ok(());
        }
        for request in self.forget.releases() {
            let until = clock.now() + self.forget.timing.attempt;
            answer(clock, until, self.inner.store.dyn_release(request)).await?;
        }
        self.disarm();
        Ok(())
    }

    pub(super) fn disarm(&mut self) {
        self.awaited = false;
        self.missing = false;
        self.unwanted = false;
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if self.is_open() {
            self.inner.desk.leave(Job::Forget(self.forget.clone()));
        }
    }
}
