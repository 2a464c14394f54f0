//! What a reconcile hook has not said yet, said by an operator in its place.
//!
//! The record of the lost run is done, with a marker, and so cannot be resolved; the hook is asked under the key that it
//! leads to. So the operator does there what a repeat does, takes the key's claim, and finishes it with what a hook or
//! another operator would leave. A claim has one owner: a hook that is being asked keeps it, and the operator is told of
//! the conflict; one that is asked later finds it done. A hook that was asked, lapsed, and says something after all has
//! a lower token, and is not heard.

use tower_claim::store::{Finish, RecordView, Resolved, State, Value};
use tower_claim::{Attempt, Claim, StoreError, Terms, Token};

use super::resolve::Word;
use super::{Operator, UnknownOutcome, waits_for_hook};
use crate::layer::RECONCILE_LABEL;
use crate::record::Marker;

impl Operator {
    pub(super) async fn resolve_instead(
        &self,
        outcome: &UnknownOutcome,
        word: Word,
    ) -> Result<Resolved, StoreError> {
        let marker = match self.store.dyn_peek(outcome.key).await? {
            Some(record) if record.state != State::Free => record,
            _ => return Ok(Resolved::Absent),
        };
        if marker.state != State::Done || marker.token != outcome.token {
            return Ok(conflict(marker.token));
        }
        let claim = match self.claim_instead(outcome, &marker).await? {
            Ok(claim) => claim,
            Err(token) => return Ok(conflict(token)),
        };
        let token = claim.token();
        // Behind the marker's end nothing leads here any more.
        let (value, keep) = match word {
            Word::Done(value) => (value, marker.expires_in.min(self.shared.retention)),
            Word::RunAgain => (Value::Kept(Marker::Run.to_bytes()), marker.expires_in),
        };
        Ok(match claim.finish(value, keep).await? {
            Finish::Finished => Resolved::Resolved { token },
            _ => conflict(token),
        })
    }

    /// The claim under which the hook would be asked next; or the token of who has been there since it was looked at.
    ///
    /// Who asks, lets the handler run and gives the claim back, all between the look and the claim, leaves nothing that
    /// tells of it.
    async fn claim_instead(
        &self,
        outcome: &UnknownOutcome,
        marker: &RecordView,
    ) -> Result<Result<Claim, Token>, StoreError> {
        let next = outcome.asked_at();
        let there = self.store.dyn_peek(next).await?;
        match waits_for_hook(there.as_ref()) {
            // Forgotten since: so are those that were forgotten when it was looked at.
            Some(Token::ZERO) => {}
            Some(token) if token == outcome.hook_token => {}
            _ => return Ok(Err(there.map_or(Token::ZERO, |there| there.token))),
        }
        let terms = self.terms_of_a_hook();
        let claimed = self
            .shared
            .keeper
            .claim(next, marker.fingerprint, &terms, outcome.token);
        Ok(match claimed.await? {
            Attempt::Granted(claim) => match claim.took_over() {
                // Dropped, it is given back: whoever comes next asks the hook.
                Some(lapsed) if lapsed.token != outcome.hook_token => Err(lapsed.token),
                _ => Ok(claim),
            },
            Attempt::Busy(busy) => Err(busy.token),
            Attempt::Done(done) => Err(done.token),
            Attempt::Unknown(unknown) => Err(unknown.token),
            _ => Err(outcome.hook_token),
        })
    }

    /// As of a repeat: where this process dies over it, the hook is asked.
    pub(super) fn terms_of_a_hook(&self) -> Terms {
        match &self.shared.reconcile {
            Some(reconcile) => reconcile.terms.clone(),
            None => self.shared.terms.labelled(RECONCILE_LABEL),
        }
    }
}

fn conflict(token: Token) -> Resolved {
    Resolved::Conflict { token }
}
