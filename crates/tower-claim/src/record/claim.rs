//! The claim.

use std::sync::Arc;

use super::{At, Limit, Phase, Record, Standing};
use crate::store::{Busy, ClaimRequest, Claimed, Cooling, Grant, StoreTime, TookOver, Unknown};
use crate::{Fingerprint, Nonce, Settings, StoreError, Token};

/// What of a claim decides whether it is granted.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    /// Drawn for this claim.
    pub nonce: Nonce,
    /// What must not change under the key.
    pub fingerprint: Option<Fingerprint>,
    /// Past this the claim is too late.
    pub not_after: StoreTime,
}

impl Record {
    /// Claims the key. `terms` keeps the settings, or shares a copy kept already.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`] where no token is left above the floor.
    pub fn claim(
        &mut self,
        request: &ClaimRequest<'_>,
        at: At,
        terms: impl FnOnce(&Settings) -> Arc<Settings>,
    ) -> Result<Claimed, StoreError> {
        let asker = Asker {
            nonce: request.nonce,
            fingerprint: request.fingerprint,
            not_after: request.not_after,
        };
        if let Some(refusal) = self.refusal(&asker, at.now) {
            if let Claimed::Mine { .. } | Claimed::Ended = refusal {
                // A later copy of the same claim: the nonce is remembered as long as any may arrive.
                self.remember(request.nonce, request.not_after, at.now);
            }
            return Ok(refusal);
        }
        let token = self.next_token(request.floor, at.unix_ms)?;
        let terms = terms(request.settings);
        Ok(Claimed::Granted(self.grant(&asker, token, terms, at.now)))
    }

    /// Why this claim is not granted; `None` when it may be.
    pub fn refusal(&self, asker: &Asker, now: StoreTime) -> Option<Claimed> {
        if now > asker.not_after {
            return Some(Claimed::TooLate);
        }
        let standing = self.standing(now);
        if self.is_last(asker.nonce) {
            // Grants nothing: a full lease counted from a repeated call would make two believers.
            return Some(match self.phase {
                Phase::Held { attempt, .. } if standing != Standing::Free => Claimed::Mine {
                    token: self.token,
                    rest: self.until.saturating_since(now),
                    attempt,
                },
                _ => Claimed::Ended,
            });
        }
        if self.spent.contains(asker.nonce, now) {
            return Some(Claimed::Ended);
        }
        let same_fingerprint = self.phase.fingerprint() == asker.fingerprint;
        let cooling = self.not_before().saturating_since(now);
        match standing {
            Standing::Held => Some(self.busy(same_fingerprint, now)),
            Standing::Done => self.done(same_fingerprint, now).map(Claimed::Done),
            Standing::Unknown => Some(Claimed::Unknown(Unknown {
                token: self.token,
                same_fingerprint,
            })),
            Standing::Lapsed if !cooling.is_zero() => Some(Claimed::Cooling(Cooling {
                remaining: cooling,
                same_fingerprint,
            })),
            Standing::Lapsed if !same_fingerprint => Some(self.busy(false, now)),
            Standing::Free if !cooling.is_zero() => Some(Claimed::Cooling(Cooling {
                remaining: cooling,
                same_fingerprint: true,
            })),
            Standing::Lapsed | Standing::Free => {
                let suspect = self.spent.may_be_folded(asker.not_after);
                suspect.then_some(Claimed::Ended)
            }
        }
    }

    fn busy(&self, same_fingerprint: bool, now: StoreTime) -> Claimed {
        Claimed::Busy(Busy {
            token: self.token,
            since: now.saturating_since(self.since),
            expires_in: self.until.saturating_since(now),
            same_fingerprint,
            label: self.label(),
        })
    }

    /// Hands the key to a claim that nothing [refuses](Self::refusal), under a token from
    /// [`next_token`](Self::next_token) or above.
    pub fn grant(
        &mut self,
        asker: &Asker,
        token: Token,
        terms: Arc<Settings>,
        now: StoreTime,
    ) -> Grant {
        let (took_over, before) = match self.phase {
            Phase::Held {
                last_beat,
                progress,
                attempt,
                ..
            } if self.standing(now) == Standing::Lapsed => {
                let took_over = TookOver {
                    token: self.token,
                    since: now.saturating_since(self.since),
                    last_beat: now.saturating_since(last_beat),
                    progress,
                };
                (Some(took_over), attempt)
            }
            _ => (None, 0),
        };
        if !self.is_vacant() {
            self.spent
                .remember(self.nonce, self.phase.not_after().time(), now);
        }
        let attempt = before.saturating_add(1);
        let lease = terms.lease;
        self.phase = Phase::Held {
            not_after: Limit::of(asker.not_after),
            fingerprint: asker.fingerprint,
            last_beat: now,
            progress: 0,
            attempt,
            marked: false,
            revoke_asked: false,
        };
        self.token = token;
        self.nonce = asker.nonce;
        self.terms = Some(terms);
        self.since = now;
        self.until = now.saturating_add(lease);
        Grant {
            token,
            lease: self.until.saturating_since(now),
            attempt,
            took_over,
        }
    }
}
