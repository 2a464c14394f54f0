//! The promises as checkers, and the ghost variables they need: what a perfect witness remembers. No rule
//! of the protocol reads them.

use std::fmt;

use super::Model;
use super::answer::{Answer, Arrival, Asker, Change};
use super::bits::Bits;
use super::config::{NEVER, NONCES, NonceId, Policy, down, owner_of};
use super::record::{State, Store};
use super::world::World;

/// The promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    /// Tokens of grants strictly increase.
    S2,
    /// At most one owner believes that it holds the key.
    S3,
    /// One finished result within its keep; a superseded owner's finish is refused; one effect after the
    /// mark and under Hold.
    S4,
    /// A repeated or late call has at most the effect of one; one nonce is granted once.
    S5,
    /// After a crash the key is claimable, or its outcome unknown, in bounded time.
    L1,
    /// After `release` has answered a late call with that nonce is harmless.
    C1,
}

/// A promise broken, and in what way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breach {
    /// The promise.
    pub property: Property,
    /// What happened.
    pub what: &'static str,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.property, self.what)
    }
}

fn unless(holds: bool, property: Property, what: &'static str) -> Result<(), Breach> {
    if holds {
        Ok(())
    } else {
        Err(Breach { property, what })
    }
}

/// What the witness knows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ghost {
    /// The highest token ever granted.
    highest: u8,
    /// The nonces that had a grant.
    pub(super) granted: [bool; NONCES],
    /// The nonces to which a release was answered.
    pub(super) released: [bool; NONCES],
    /// The nonces whose finish was applied.
    pub(super) finished: [bool; NONCES],
    /// Who finished last, and the ticks for which the result was promised.
    result_of: u8,
    result_left: u8,
    /// Ticks for which no second effect may happen.
    effect_left: u8,
}

impl Ghost {
    /// S2, S4, S5, C1: the store did `change` because of `call`.
    pub(super) fn observe(
        &mut self,
        model: &Model,
        store: &Store,
        call: Arrival,
        change: Change,
    ) -> Result<(), Breach> {
        let checked = self
            .s5_one_nonce_is_granted_once(call, change)
            .and(self.s2_tokens_rise(store, change))
            .and(self.s4_a_superseded_finish_is_refused(call, change))
            .and(self.s4_one_result_within_its_keep(model, call, change))
            .and(self.c1_a_released_nonce_changes_nothing(call, change));
        match change {
            Change::Granted => {
                self.granted[call.nonce] = true;
                self.highest = store.token;
            }
            Change::Finished => {
                self.finished[call.nonce] = true;
                self.result_of = call.nonce as u8;
                self.result_left = model.config.keep;
                if self.effect_left > 0 {
                    self.effect_left = model.config.keep;
                }
            }
            Change::Nothing | Change::Renewed | Change::Marked | Change::Released => {}
        }
        checked
    }

    fn s2_tokens_rise(&self, store: &Store, change: Change) -> Result<(), Breach> {
        let holds = change != Change::Granted || store.token > self.highest;
        unless(
            holds,
            Property::S2,
            "a grant's token is not above all before",
        )
    }

    fn s4_a_superseded_finish_is_refused(
        &self,
        call: Arrival,
        change: Change,
    ) -> Result<(), Breach> {
        let holds = change != Change::Finished || call.token == self.highest;
        unless(holds, Property::S4, "a superseded owner's finish was taken")
    }

    fn s4_one_result_within_its_keep(
        &self,
        model: &Model,
        call: Arrival,
        change: Change,
    ) -> Result<(), Breach> {
        let print = |nonce: NonceId| model.config.fingerprint[owner_of(nonce)];
        let first = usize::from(self.result_of);
        let holds = change != Change::Finished
            || self.result_left == 0
            || first == call.nonce
            || print(first) != print(call.nonce);
        unless(
            holds,
            Property::S4,
            "a second result within the first one's keep",
        )
    }

    fn s5_one_nonce_is_granted_once(&self, call: Arrival, change: Change) -> Result<(), Breach> {
        let holds = change != Change::Granted || !self.granted[call.nonce];
        unless(holds, Property::S5, "one nonce was granted twice")
    }

    fn c1_a_released_nonce_changes_nothing(
        &self,
        call: Arrival,
        change: Change,
    ) -> Result<(), Breach> {
        let holds = change == Change::Nothing || !self.released[call.nonce];
        unless(
            holds,
            Property::C1,
            "a late call of a released nonce changed the record",
        )
    }

    /// S4: an owner does the work that must be done once.
    pub(super) fn s4_one_effect(&mut self) -> Result<(), Breach> {
        let holds = self.effect_left == 0;
        self.effect_left = NEVER;
        unless(
            holds,
            Property::S4,
            "a second effect of work that is done once",
        )
    }

    /// S5: an owner hears the answer to its finish.
    pub(super) fn s5_a_repeat_is_answered_as_the_first(
        &self,
        nonce: NonceId,
        answer: Answer,
    ) -> Result<(), Breach> {
        let holds = self.finished[nonce] == (answer == Answer::Finished);
        unless(
            holds,
            Property::S5,
            "a finish was applied and a copy of it answered otherwise",
        )
    }

    /// One tick passes.
    pub(super) fn tick(&mut self) {
        self.result_left = down(self.result_left);
        if self.result_left == 0 {
            self.result_of = 0;
        }
        self.effect_left = down(self.effect_left);
    }

    #[inline(always)]
    pub(super) fn code<const WRITE: bool>(&mut self, bits: &mut Bits<WRITE>) {
        for nonce in 0..NONCES {
            bits.flag(&mut self.granted[nonce]);
            bits.flag(&mut self.released[nonce]);
            bits.flag(&mut self.finished[nonce]);
        }
        bits.number(&mut self.result_of, 2);
        for field in [
            &mut self.highest,
            &mut self.result_left,
            &mut self.effect_left,
        ] {
            bits.number(field, 3);
        }
    }
}

impl World {
    /// S3 and L1: what must hold in each state.
    pub(super) fn check(&self, model: &Model) -> Result<(), Breach> {
        self.s3_at_most_one_believes(model)
            .and(self.l1_claimable_after_a_crash(model))
    }

    fn s3_at_most_one_believes(&self, model: &Model) -> Result<(), Breach> {
        let [a, b] = &self.owners;
        let holds = !(a.believes(model) && b.believes(model));
        unless(
            holds,
            Property::S3,
            "two owners believe that they hold the key",
        )
    }

    /// Whoever holds dies now and no call under way arrives: then lease + cooling + one poll step later a
    /// stranger with the same fingerprint is granted the key, or told that it is done or unknown.
    /// Asked of *every* state, so that it covers each moment of a crash and each last call under way.
    fn l1_claimable_after_a_crash(&self, model: &Model) -> Result<(), Breach> {
        if self.store.state != State::Held {
            return Ok(());
        }
        let holder = owner_of(self.store.nonce.into());
        let stranger = Asker {
            policy: model.config.policy[holder],
            fingerprint: model.config.fingerprint[holder],
        };
        let unknown_is_right = stranger.policy == Policy::Hold || self.store.marked;
        let mut later = self.store;
        for _ in 0..model.config.lease + model.config.cooling {
            later.tick(model);
        }
        let holds = match later.may_grant(model, stranger) {
            Ok(()) | Err(Answer::Done) => true,
            Err(Answer::Unknown) => unknown_is_right,
            Err(_) => false,
        };
        unless(holds, Property::L1, "after a crash the key stays taken")
    }
}
