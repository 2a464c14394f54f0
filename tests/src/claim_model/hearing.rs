//! What an owner makes of the answers.

use super::Model;
use super::action::Kind;
use super::answer::Answer;
use super::config::{NonceId, Who};
use super::owner::Phase;
use super::properties::Breach;
use super::world::World;

impl World {
    /// Whether the owner waits for an answer of this kind.
    pub(super) fn listens(&self, who: Who, kind: Kind, nonce: NonceId) -> bool {
        let owner = self.owners[who];
        let phase = match kind {
            Kind::Claim => Phase::Claiming,
            Kind::Renew | Kind::Mark => Phase::Holding,
            Kind::Finish => Phase::Finishing,
            Kind::Release => Phase::Releasing,
        };
        owner.phase == phase && owner.nonce(who) == nonce
    }

    /// The owner hears an answer to the call it sent `age` ticks ago.
    pub(super) fn hear(
        &mut self,
        model: &Model,
        who: Who,
        answer: Answer,
        age: u8,
    ) -> Result<(), Breach> {
        let nonce = self.owners[who].nonce(who);
        let calls = &mut self.calls[nonce];
        let owner = &mut self.owners[who];
        match (owner.phase, answer) {
            (Phase::Claiming, Answer::Granted { token, rest } | Answer::Mine { token, rest }) => {
                calls.claim_open -= 1;
                calls.token = token;
                owner.phase = Phase::Holding;
                owner.deadline = model.believable(rest, age);
                Ok(())
            }
            (Phase::Claiming, Answer::Busy | Answer::Cooling | Answer::TooLate) => {
                calls.claim_open -= 1;
                if calls.claim_open == 0 && calls.claim_sent == model.config.sends.claim {
                    return self.over(model, who, true);
                }
                Ok(())
            }
            (Phase::Claiming, _) => {
                calls.claim_open -= 1;
                self.over(model, who, true)
            }
            (Phase::Holding, Answer::Renewed { rest }) => {
                owner.deadline = owner.deadline.max(model.believable(rest, age));
                Ok(())
            }
            (Phase::Holding, Answer::Marked) => {
                owner.marked = true;
                Ok(())
            }
            (Phase::Holding, _) => {
                owner.deadline = 0;
                Ok(())
            }
            (Phase::Finishing, answer) => {
                let checked = self
                    .ghost
                    .s5_a_repeat_is_answered_as_the_first(nonce, answer);
                self.over(model, who, true).and(checked)
            }
            (Phase::Releasing, _) => self.over(model, who, true),
            (Phase::Over | Phase::Crashed, _) => Ok(()),
        }
    }
}
