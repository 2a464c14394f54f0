//! The store: the record of the one key, and the rules by which it answers.

use super::Model;
use super::answer::{Answer, Arrival, Asker, Change};
use super::bits::Bits;
use super::config::{NEVER, NONCES, NonceId, Policy, down, owner_of};

/// The states of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Free,
    Held,
    Done,
    /// Reached by a release after the mark. Reached by a lapse it is `Held` with no lease left, as in the
    /// engines: nothing has to run at the moment of a lapse.
    Unknown,
}

/// What the store remembers of one nonce.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Memory {
    /// It had its grant, or was refused one.
    pub(super) spent: bool,
    /// Ticks to the `not_after` that the store was told.
    pub(super) until: u8,
}

/// The record, and the nonces it remembers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Store {
    pub(super) state: State,
    /// Its owner, when not free.
    pub(super) nonce: u8,
    /// The last token granted.
    pub(super) token: u8,
    /// Held: the lease left. Done, unknown: the keep left.
    pub(super) left: u8,
    /// Held: ticks since the lapse.
    pub(super) lapsed: u8,
    pub(super) marked: bool,
    /// The engine's TTL, in the variant that has one.
    pub(super) ttl: u8,
    pub(super) memory: [Memory; NONCES],
}

impl Store {
    pub(super) fn claim(&mut self, model: &Model, call: Arrival) -> (Answer, Change) {
        let asker = Asker {
            policy: model.config.policy[owner_of(call.nonce)],
            fingerprint: model.config.fingerprint[owner_of(call.nonce)],
        };
        if model.rules.not_after && call.not_after == 0 {
            return (Answer::TooLate, Change::Nothing);
        }
        if self.memory[call.nonce].spent {
            return (Answer::Ended, Change::Nothing);
        }
        if self.state != State::Free && usize::from(self.nonce) == call.nonce {
            let rest = if model.rules.mine_grants_nothing {
                self.left
            } else {
                model.config.lease
            };
            let token = self.token;
            return match self.state {
                State::Held => (Answer::Mine { token, rest }, Change::Nothing),
                _ => (Answer::Ended, Change::Nothing),
            };
        }
        if let Err(refused) = self.may_grant(model, asker) {
            return (refused, Change::Nothing);
        }
        self.end(model);
        self.token += 1;
        self.state = State::Held;
        self.nonce = call.nonce as u8;
        self.left = model.config.lease;
        self.memory[call.nonce].until = call.not_after;
        if !model.rules.nothing_live_ends {
            self.ttl = model.config.lease;
        }
        let (token, rest) = (self.token, model.config.lease);
        (Answer::Granted { token, rest }, Change::Granted)
    }

    /// Whether somebody who does not hold the key would be granted it now.
    pub(super) fn may_grant(&self, model: &Model, asker: Asker) -> Result<(), Answer> {
        match self.state {
            State::Free => Ok(()),
            State::Done => Err(Answer::Done),
            State::Unknown => Err(Answer::Unknown),
            State::Held if self.left > 0 => Err(Answer::Busy),
            State::Held => {
                let owner = owner_of(self.nonce.into());
                let policy = if model.rules.records_own_policy {
                    model.config.policy[owner]
                } else {
                    asker.policy
                };
                if policy == Policy::Hold || (self.marked && model.rules.mark_bars_takeover) {
                    Err(Answer::Unknown)
                } else if asker.fingerprint != model.config.fingerprint[owner] {
                    Err(Answer::Busy)
                } else if self.lapsed < model.config.cooling {
                    Err(Answer::Cooling)
                } else {
                    Ok(())
                }
            }
        }
    }

    pub(super) fn renew(&mut self, model: &Model, call: Arrival) -> (Answer, Change) {
        if !self.is_live_hold_of(call) {
            return (Answer::Lost, Change::Nothing);
        }
        self.left = self.left.max(model.config.lease);
        (Answer::Renewed { rest: self.left }, Change::Renewed)
    }

    pub(super) fn mark(&mut self, call: Arrival) -> (Answer, Change) {
        if !self.is_live_hold_of(call) {
            return (Answer::Lost, Change::Nothing);
        }
        let change = if self.marked {
            Change::Nothing
        } else {
            Change::Marked
        };
        self.marked = true;
        (Answer::Marked, change)
    }

    pub(super) fn finish(&mut self, model: &Model, call: Arrival) -> (Answer, Change) {
        let own = self.is_of(call);
        match self.state {
            State::Held if own || !model.rules.token_in_finish => {
                self.state = State::Done;
                self.nonce = call.nonce as u8;
                self.left = model.config.keep;
                (self.lapsed, self.marked, self.ttl) = (0, false, 0);
                (Answer::Finished, Change::Finished)
            }
            State::Done if own && model.rules.finish_repeats => (Answer::Finished, Change::Nothing),
            _ => (Answer::Lost, Change::Nothing),
        }
    }

    pub(super) fn release(&mut self, model: &Model, call: Arrival) -> (Answer, Change) {
        let own = self.is_of(call);
        match self.state {
            State::Held if own || !model.rules.token_in_release => {
                let hold = model.config.policy[owner_of(self.nonce.into())] == Policy::Hold;
                if self.left == 0 && (hold || self.marked) {
                    return (Answer::Lost, Change::Nothing);
                }
                if self.marked && model.rules.marked_release_is_unknown {
                    self.state = State::Unknown;
                    self.left = model.config.unfinished_keep;
                    (self.lapsed, self.marked, self.ttl) = (0, false, 0);
                } else {
                    self.told(call);
                    self.spend(model, call.nonce);
                    self.end(model);
                }
                (Answer::Released, Change::Released)
            }
            State::Done if own && !model.rules.release_spares_done => {
                self.told(call);
                self.end(model);
                (Answer::Released, Change::Released)
            }
            State::Done | State::Unknown if own => (Answer::Lost, Change::Nothing),
            _ => {
                if model.rules.release_stores_nonce {
                    self.told(call);
                    self.spend(model, call.nonce);
                }
                (Answer::Already, Change::Nothing)
            }
        }
    }

    /// One tick passes.
    pub(super) fn tick(&mut self, model: &Model) {
        let config = &model.config;
        for memory in &mut self.memory {
            memory.until = down(memory.until);
            // Forgotten as early as it may be: from here on the call is too late anyway.
            memory.spent &= memory.until > 0;
        }
        self.ttl = down(self.ttl);
        match self.state {
            State::Free => {}
            State::Held => {
                if self.left > 0 {
                    self.left -= u8::from(model.rules.leases_lapse);
                } else {
                    self.lapsed = (self.lapsed + 1).min(config.lapse_cap());
                }
                let kept = config.unfinished_keep == NEVER || self.lapsed < config.unfinished_keep;
                let engine_ends_it = !model.rules.nothing_live_ends && self.ttl == 0;
                if (self.left == 0 && !kept) || engine_ends_it {
                    self.end(model);
                }
            }
            State::Done | State::Unknown => {
                self.left = down(self.left);
                if self.left == 0 {
                    self.end(model);
                }
            }
        }
    }

    /// What was is over: the record is free, its nonce is spent.
    fn end(&mut self, model: &Model) {
        if self.state != State::Free {
            self.spend(model, self.nonce.into());
            if !model.rules.token_outlives_record {
                self.token = 0;
            }
        }
        self.state = State::Free;
        (self.nonce, self.left, self.lapsed) = (0, 0, 0);
        (self.marked, self.ttl) = (false, 0);
    }

    fn spend(&mut self, model: &Model, nonce: NonceId) {
        let memory = &mut self.memory[nonce];
        memory.spent = model.rules.spent_remembered && memory.until > 0;
    }

    /// A release tells the latest `not_after` of its claim.
    fn told(&mut self, call: Arrival) {
        let memory = &mut self.memory[call.nonce];
        memory.until = memory.until.max(call.not_after);
    }

    fn is_of(&self, call: Arrival) -> bool {
        self.state != State::Free
            && usize::from(self.nonce) == call.nonce
            && (call.token == 0 || call.token == self.token)
    }

    fn is_live_hold_of(&self, call: Arrival) -> bool {
        self.state == State::Held && self.is_of(call) && self.left > 0
    }

    #[inline(always)]
    pub(super) fn code<const WRITE: bool>(&mut self, bits: &mut Bits<WRITE>) {
        let mut state = self.state as u8;
        bits.number(&mut state, 2);
        self.state = [State::Free, State::Held, State::Done, State::Unknown][usize::from(state)];
        bits.number(&mut self.nonce, 2);
        for field in [
            &mut self.token,
            &mut self.left,
            &mut self.lapsed,
            &mut self.ttl,
        ] {
            bits.number(field, 3);
        }
        bits.flag(&mut self.marked);
        for memory in &mut self.memory {
            bits.flag(&mut memory.spent);
            bits.number(&mut memory.until, 3);
        }
    }
}
