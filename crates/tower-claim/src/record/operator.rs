//! What an operator does with a claim.

use super::{At, Limit, Phase, Record, Standing};
use crate::store::{Broken, Purged, Resolution, Resolved};
use crate::{StoreError, Token};

impl Record {
    /// Settles an unknown outcome.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`] where no higher token is left.
    pub fn resolve(
        &mut self,
        expected: Token,
        resolution: Resolution,
        at: At,
    ) -> Result<Resolved, StoreError> {
        if self.is_vacant() {
            return Ok(Resolved::Absent);
        }
        if self.standing(at.now) != Standing::Unknown || self.token != expected {
            return Ok(Resolved::Conflict { token: self.token });
        }
        let token = self.next_token(Token::ZERO, at.unix_ms)?;
        let not_before = self.not_before();
        match resolution {
            Resolution::Done(value, keep) => self.conclude(value, keep, not_before, at),
            Resolution::Absent => self.free(at.now, not_before),
        }
        self.token = token;
        Ok(Resolved::Resolved { token })
    }

    /// Asks the owner to stop; false where there is no such hold.
    pub fn ask_revoke(&mut self, expected: Token, at: At) -> bool {
        let held = self.standing(at.now) == Standing::Held && self.token == expected;
        match &mut self.phase {
            Phase::Held { revoke_asked, .. } if held => {
                *revoke_asked = true;
                true
            }
            _ => false,
        }
    }

    /// Ends a hold by force. The owner may be at work still: the key cools from now on, as after a crash.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`] where no higher token is left.
    pub fn break_claim(&mut self, expected: Token, at: At) -> Result<Broken, StoreError> {
        if self.is_vacant() {
            return Ok(Broken::Absent);
        }
        let (last_beat, progress, marked) = match (&self.phase, self.standing(at.now)) {
            (
                &Phase::Held {
                    last_beat,
                    progress,
                    marked,
                    ..
                },
                Standing::Held | Standing::Lapsed,
            ) if self.token == expected => (last_beat, progress, marked),
            _ => return Ok(Broken::Conflict { token: self.token }),
        };
        let token = self.next_token(Token::ZERO, at.unix_ms)?;
        let unknown = self.holds_on();
        // The record stays until the owner's next beat has learnt who ended its hold.
        if let Some(known) = self.phase.not_after_mut() {
            *known = (*known).max(Limit::of(self.until));
        }
        // Cooling counts from the end of the hold, which is now where it has not lapsed before.
        self.until = self.until.min(at.now);
        let not_before = self.not_before();
        if unknown {
            self.become_unknown(last_beat, progress, marked, not_before, at);
        } else {
            self.free(at.now, not_before);
        }
        self.token = token;
        Ok(Broken::Broken { token })
    }

    /// Drops a result: the key is free again, and nothing of the work is left. A late copy of the claim is
    /// refused and a late finish is lost, as long as they may arrive.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`] where no higher token is left.
    pub fn purge(&mut self, expected: Token, at: At) -> Result<Purged, StoreError> {
        match self.standing(at.now) {
            Standing::Free => {
                // Whoever hears that nothing is there may count on it: also where a keep has just passed.
                self.settle(at.now);
                return Ok(Purged::Absent);
            }
            Standing::Done if self.token == expected => {}
            _ => return Ok(Purged::Conflict { token: self.token }),
        }
        let token = self.next_token(Token::ZERO, at.unix_ms)?;
        self.free(at.now, self.taken_until());
        self.token = token;
        Ok(Purged::Purged { token })
    }
}
