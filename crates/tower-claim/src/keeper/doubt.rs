//! A claim in doubt: what may have been granted, or still may be, is not left behind.

use std::time::Duration;

use super::Inner;
use super::cleanup::{Forget, Job};
use super::hold::Keys;
use super::terms::Terms;
use crate::store::StoreTime;
use crate::wait::answer;
use crate::{Clock, Nonce, StoreError};

/// How often one nonce is sent at most.
pub(super) const SENDS: u32 = 3;

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
    sent: bool,
}

impl<'a> Doubt<'a> {
    pub(super) fn new(inner: &'a Inner, keys: Keys, nonce: Nonce, terms: &Terms) -> Self {
        Self {
            inner,
            forget: Forget {
                keys,
                nonce,
                not_after: StoreTime::default(),
                timing: terms.timing(),
                lapses_takeovers: terms.lapses_unheard_takeovers(),
            },
            awaited: false,
            missing: false,
            unwanted: false,
            sent: false,
        }
    }

    /// A copy goes out now; it changes nothing past the instant answered here.
    ///
    /// All copies carry the first one's `not_after`. With a later one of its own, a copy could arrive when
    /// the store has already forgotten the nonce, which it remembers until the `not_after` it has seen: after
    /// a finish with a short keep that copy would be granted again.
    pub(super) fn send(&mut self) -> StoreTime {
        self.missing |= self.awaited;
        self.awaited = true;
        if !self.sent {
            self.sent = true;
            let all_sends = self.forget.timing.attempt * SENDS + self.pause() * (SENDS - 1);
            self.forget.not_after = self.inner.store.dyn_now().saturating_add(all_sends);
        }
        self.forget.not_after
    }

    /// How long to wait before the next copy.
    pub(super) fn pause(&self) -> Duration {
        self.forget.timing.attempt / 4
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

    /// Gives back what may be held, before another nonce is drawn: it would find the key busy with us.
    pub(super) async fn settle(&mut self, clock: &dyn Clock) -> Result<(), StoreError> {
        if !self.is_open() {
            return Ok(());
        }
        for request in self.forget.releases() {
            let until = clock.now() + self.forget.timing.attempt;
            let given_back = self.forget.give_back(&*self.inner.store, request);
            answer(clock, until, given_back).await?;
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
