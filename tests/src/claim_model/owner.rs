//! An owner: what it does, and what it makes of the answers.

use super::Model;
use super::action::{Action, Kind};
use super::bits::Bits;
use super::config::{NonceId, Policy, Who};
use super::network::{NONE, send};
use super::properties::Breach;
use super::world::{Step, World};

/// Where an owner is with the claim of its last nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    /// No claim yet, or the last one has ended.
    #[default]
    Over,
    /// The claim is sent and not answered.
    Claiming,
    /// Granted. It believes so while its deadline lasts.
    Holding,
    /// `finish` was sent: from now on it is only repeated.
    Finishing,
    /// `release` was sent.
    Releasing,
    Crashed,
}

/// One of the two owners.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Owner {
    pub(super) phase: Phase,
    /// Nonces drawn so far.
    pub(super) draws: u8,
    /// Ticks for which it believes.
    pub(super) deadline: u8,
    /// Ticks for which it still repeats its finish.
    pub(super) budget: u8,
    /// It heard a clear yes to its mark.
    pub(super) marked: bool,
    /// It did the work.
    pub(super) acted: bool,
}

impl Owner {
    pub(super) fn believes(&self, model: &Model) -> bool {
        let in_doubt = matches!(self.phase, Phase::Finishing | Phase::Releasing);
        let holds =
            self.phase == Phase::Holding || (in_doubt && !model.rules.belief_ends_at_finish);
        holds && self.deadline > 0
    }

    pub(super) fn nonce(&self, who: Who) -> NonceId {
        2 * who + usize::from(self.draws.saturating_sub(1))
    }

    #[inline(always)]
    pub(super) fn code<const WRITE: bool>(&mut self, bits: &mut Bits<WRITE>) {
        let mut phase = self.phase as u8;
        bits.number(&mut phase, 3);
        self.phase = [
            Phase::Over,
            Phase::Claiming,
            Phase::Holding,
            Phase::Finishing,
            Phase::Releasing,
            Phase::Crashed,
        ][usize::from(phase)];
        bits.number(&mut self.draws, 2);
        bits.number(&mut self.deadline, 3);
        bits.number(&mut self.budget, 3);
        bits.flag(&mut self.marked);
        bits.flag(&mut self.acted);
    }
}

impl World {
    /// Everything that owner `who` may do now.
    pub(super) fn owner_moves(&self, model: &Model, who: Who, out: &mut Vec<Step>) {
        let owner = self.owners[who];
        if owner.phase == Phase::Crashed {
            return;
        }
        let (config, rules) = (&model.config, &model.rules);
        let nonce = owner.nonce(who);
        let calls = self.calls[nonce];
        let mut may = |action: Action, change: &dyn Fn(&mut World) -> Result<(), Breach>| {
            let mut world = *self;
            let checked = change(&mut world);
            out.push(Step::new(model, action, world, checked));
        };

        match owner.phase {
            Phase::Over => {
                if owner.draws < config.nonces[who] {
                    may(Action::Draw(who), &|world| {
                        world.owners[who].draws += 1;
                        world.owners[who].phase = Phase::Claiming;
                        world.send_claim(model, world.owners[who].nonce(who));
                        Ok(())
                    });
                }
            }
            Phase::Claiming => {
                let in_time = calls.not_after > 0 || !rules.one_not_after;
                if calls.claim_sent < config.sends.claim && in_time {
                    may(Action::Sends(Kind::Claim, nonce), &|world| {
                        world.send_claim(model, nonce);
                        Ok(())
                    });
                }
                if calls.late_grant != NONE {
                    may(Action::HearsLate(nonce), &|world| {
                        world.calls[nonce].claim_open -= 1;
                        world.owners[who].phase = Phase::Holding;
                        world.owners[who].deadline = calls.late_grant;
                        Ok(())
                    });
                }
                may(Action::GivesUp(nonce), &|world| {
                    world.over(model, who, false)
                });
            }
            Phase::Holding => {
                let beats = owner.deadline > 0;
                if beats && calls.renew_sent < config.sends.renew && calls.renews[1] == NONE {
                    may(Action::Sends(Kind::Renew, nonce), &|world| {
                        world.calls[nonce].renew_sent += 1;
                        send(&mut world.calls[nonce].renews);
                        Ok(())
                    });
                }
                if beats && !owner.marked && calls.mark_sent < config.sends.mark {
                    may(Action::Sends(Kind::Mark, nonce), &|world| {
                        world.calls[nonce].mark_sent += 1;
                        world.calls[nonce].marks += 1;
                        Ok(())
                    });
                }
                // However late: a process may be paused between the check and the work.
                let marked = owner.marked || (!rules.clear_yes && calls.mark_sent > 0);
                let hold = config.policy[who] == Policy::Hold;
                if config.effects && !owner.acted && (hold || marked) {
                    may(Action::Acts(nonce), &|world| {
                        world.owners[who].acted = true;
                        world.ghost.s4_one_effect()
                    });
                }
                if config.sends.finish > 0 {
                    may(Action::Sends(Kind::Finish, nonce), &|world| {
                        world.owners[who].phase = Phase::Finishing;
                        world.owners[who].budget = model.finish_budget();
                        world.send_finish(nonce);
                        Ok(())
                    });
                }
                // Work that was begun under Hold is not given back; after a mark the record turns unknown.
                let begun = owner.acted && !owner.marked;
                if config.sends.release > 0 && !begun {
                    may(Action::Sends(Kind::Release, nonce), &|world| {
                        world.owners[who].phase = Phase::Releasing;
                        world.send_release(nonce);
                        Ok(())
                    });
                }
                if owner.deadline == 0 {
                    may(Action::GivesUp(nonce), &|world| {
                        world.over(model, who, false)
                    });
                }
            }
            Phase::Finishing => {
                if calls.finish_sent < config.sends.finish && owner.budget > 0 {
                    may(Action::Sends(Kind::Finish, nonce), &|world| {
                        world.send_finish(nonce);
                        Ok(())
                    });
                }
            }
            Phase::Releasing => {
                if calls.release_sent < config.sends.release {
                    may(Action::Sends(Kind::Release, nonce), &|world| {
                        world.send_release(nonce);
                        Ok(())
                    });
                }
                may(Action::GivesUp(nonce), &|world| {
                    world.over(model, who, false)
                });
            }
            Phase::Crashed => {}
        }

        for old in 2 * who..2 * who + usize::from(owner.draws) {
            let calls = self.calls[old];
            if self.is_over(old)
                && calls.claim_open > 0
                && calls.release_sent < config.sends.release
            {
                may(Action::CleansUp(old), &|world| {
                    world.send_release(old);
                    Ok(())
                });
            }
        }
        if config.crash && self.owners[1 - who].phase != Phase::Crashed && owner.draws > 0 {
            may(Action::Crash(who), &|world| {
                world.owners[who] = Owner {
                    phase: Phase::Crashed,
                    ..Owner::default()
                };
                for calls in &mut world.calls[2 * who..2 * who + 2] {
                    calls.claim_open = 0;
                }
                Ok(())
            });
        }
    }

    fn send_claim(&mut self, model: &Model, nonce: NonceId) {
        let calls = &mut self.calls[nonce];
        if calls.claim_sent == 0 || !model.rules.one_not_after {
            calls.not_after = model.config.not_after;
        }
        calls.claim_sent += 1;
        calls.claim_open += 1;
        send(&mut calls.claims);
    }

    fn send_finish(&mut self, nonce: NonceId) {
        self.calls[nonce].finish_sent += 1;
        self.calls[nonce].finishes += 1;
    }

    fn send_release(&mut self, nonce: NonceId) {
        self.calls[nonce].release_sent += 1;
        self.calls[nonce].releases += 1;
    }

    /// The owner's claim has ended. A copy of it that is not answered is cleaned up by nonce, unless the
    /// work was begun and its end is not known to be in the store.
    pub(super) fn over(&mut self, model: &Model, who: Who, answered: bool) -> Result<(), Breach> {
        let owner = &mut self.owners[who];
        let begun = owner.acted || owner.phase == Phase::Finishing;
        if begun && !answered && model.rules.begun_is_not_released {
            self.calls[owner.nonce(who)].claim_open = 0;
        }
        *owner = Owner {
            draws: owner.draws,
            ..Owner::default()
        };
        Ok(())
    }
}
