//! One state of everything, and all that may happen next.

use super::Model;
use super::action::{Action, Kind, Reply};
use super::answer::{Answer, Arrival};
use super::bits::{Bits, Packed};
use super::config::{NONCES, NonceId, down, owner_of};
use super::network::{Calls, NONE, take};
use super::owner::{Owner, Phase};
use super::properties::{Breach, Ghost};
use super::record::{State, Store};

/// A step, and whether it kept the promises.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) world: World,
    pub(super) checked: Result<(), Breach>,
}

impl Step {
    pub(super) fn new(
        model: &Model,
        action: Action,
        mut world: World,
        checked: Result<(), Breach>,
    ) -> Self {
        world.settle(model);
        Self {
            action,
            world,
            checked,
        }
    }
}

/// Store, owners, calls under way, and what the witness knows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct World {
    pub(super) store: Store,
    pub(super) owners: [Owner; 2],
    pub(super) calls: [Calls; NONCES],
    pub(super) ghost: Ghost,
}

impl World {
    /// Everything that may happen next.
    pub(super) fn steps(&self, model: &Model, out: &mut Vec<Step>) {
        out.push(Step::new(model, Action::Tick, self.ticked(model), Ok(())));
        for who in 0..2 {
            self.owner_moves(model, who, out);
        }
        for nonce in 0..NONCES {
            let calls = self.calls[nonce];
            for (index, age) in calls.claims.into_iter().enumerate() {
                if age != NONE && (index == 0 || age != calls.claims[0]) {
                    self.arrival(model, Kind::Claim, nonce, index, out);
                }
            }
            for (index, age) in calls.renews.into_iter().enumerate() {
                if age != NONE && (index == 0 || age != calls.renews[0]) {
                    self.arrival(model, Kind::Renew, nonce, index, out);
                }
            }
            for (kind, copies) in [
                (Kind::Mark, calls.marks),
                (Kind::Finish, calls.finishes),
                (Kind::Release, calls.releases),
            ] {
                if copies > 0 {
                    self.arrival(model, kind, nonce, 0, out);
                }
            }
        }
    }

    fn ticked(&self, model: &Model) -> World {
        let mut world = *self;
        world.store.tick(model);
        world.ghost.tick();
        let cap = if model.rules.one_not_after {
            model.config.lease
        } else {
            model.config.lease.max(model.config.not_after)
        };
        for calls in &mut world.calls {
            calls.tick(&model.rules, cap);
        }
        for who in 0..2 {
            let owner = &mut world.owners[who];
            owner.deadline = owner.deadline.saturating_sub(1);
            if owner.phase == Phase::Finishing {
                owner.budget = down(owner.budget);
                if owner.budget == 0 {
                    // Given up: the owner cannot tell any more whether its result is kept.
                    let _ = world.over(model, who, false);
                }
            }
        }
        world
    }

    /// A copy of a call arrives at the store; its answer is heard, or lost.
    fn arrival(
        &self,
        model: &Model,
        kind: Kind,
        nonce: NonceId,
        index: usize,
        out: &mut Vec<Step>,
    ) {
        let mut world = *self;
        let calls = &mut world.calls[nonce];
        let mut not_after = calls.not_after;
        let age = match kind {
            Kind::Claim => take(&mut calls.claims, index),
            Kind::Renew => take(&mut calls.renews, index),
            Kind::Mark => {
                calls.marks -= 1;
                0
            }
            Kind::Finish => {
                calls.finishes -= 1;
                0
            }
            Kind::Release => {
                calls.releases -= 1;
                0
            }
        };
        if kind == Kind::Claim && !model.rules.one_not_after {
            not_after = model.config.not_after.saturating_sub(age);
        }
        let call = Arrival {
            nonce,
            token: calls.token,
            not_after,
        };
        let store = &mut world.store;
        let (answer, change) = match kind {
            Kind::Claim => store.claim(model, call),
            Kind::Renew => store.renew(model, call),
            Kind::Mark => store.mark(call),
            Kind::Finish => store.finish(model, call),
            Kind::Release => store.release(model, call),
        };
        let checked = world.ghost.observe(model, &world.store, call, change);
        if kind == Kind::Release {
            world.ghost.released[nonce] = true;
        }
        let arrives = |reply| Action::Arrives {
            kind,
            nonce,
            answer,
            reply,
        };
        let who = owner_of(nonce);
        if world.listens(who, kind, nonce) {
            let mut told = world;
            let heard = told.hear(model, who, answer, age);
            out.push(Step::new(
                model,
                arrives(Reply::Heard),
                told,
                checked.and(heard),
            ));
            if let Answer::Granted { token, rest } | Answer::Mine { token, rest } = answer
                && model.config.late_replies
                && world.calls[nonce].late_grant == NONE
            {
                let mut late = world;
                late.calls[nonce].token = token;
                late.calls[nonce].late_grant = model.believable(rest, age);
                out.push(Step::new(model, arrives(Reply::Late), late, checked));
            }
        }
        out.push(Step::new(model, arrives(Reply::Lost), world, checked));
    }

    /// Whether the claim of this nonce has ended, as its owner sees it. True for a nonce not yet drawn.
    pub(super) fn is_over(&self, nonce: NonceId) -> bool {
        let who = owner_of(nonce);
        let owner = self.owners[who];
        matches!(owner.phase, Phase::Over | Phase::Crashed) || owner.nonce(who) != nonce
    }

    /// Forgets what no later step can read, so that states which differ in nothing else are one.
    fn settle(&mut self, model: &Model) {
        for nonce in 0..NONCES {
            let over = self.is_over(nonce);
            let holder = self.store.state != State::Free && usize::from(self.store.nonce) == nonce;
            let phase = self.owners[owner_of(nonce)].phase;
            let calls = &mut self.calls[nonce];
            let memory = &mut self.store.memory[nonce];
            if over || phase != Phase::Claiming {
                calls.claims_are_not_heard(&model.rules);
            }
            if over || phase != Phase::Holding {
                calls.beats_are_not_heard();
                if !holder && !calls.claim_under_way() {
                    calls.renews = [NONE; 2];
                    calls.marks = 0;
                }
            }
            if over {
                calls.settle();
                self.ghost.finished[nonce] = false;
                if !calls.claim_under_way() {
                    self.ghost.granted[nonce] = false;
                    *memory = Default::default();
                }
                if !calls.under_way() && calls.claim_open == 0 {
                    self.ghost.released[nonce] = false;
                }
            }
            if !memory.spent && !holder {
                memory.until = 0;
            }
        }
    }

    pub(super) fn pack(mut self) -> Packed {
        let mut packed = [0; 5];
        for (index, word) in packed.iter_mut().enumerate() {
            let mut bits = Bits::<true>::default();
            self.code(index, &mut bits);
            *word = bits.word();
        }
        packed
    }

    pub(super) fn unpack(packed: Packed) -> Self {
        let mut world = World::default();
        for (index, word) in packed.into_iter().enumerate() {
            world.code(index, &mut Bits::reader(word));
        }
        world
    }

    /// One word for each nonce's calls, the owners beside their first; one for the store and the witness.
    #[inline(always)]
    fn code<const WRITE: bool>(&mut self, word: usize, bits: &mut Bits<WRITE>) {
        match word {
            0..NONCES => {
                self.calls[word].code(bits);
                if word.is_multiple_of(2) {
                    self.owners[word / 2].code(bits);
                }
            }
            _ => {
                self.store.code(bits);
                self.ghost.code(bits);
            }
        }
    }
}
