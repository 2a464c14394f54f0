//! Claiming: one nonce per claim, repeated while its answer is missing, never granted twice.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::Inner;
use super::claim::Claim;
use super::doubt::{Doubt, SENDS};
use super::hold::{Hold, Keys};
use super::state::HoldState;
use super::terms::Terms;
use super::timing::{Jitter, Timing};
use crate::store::{
    Busy, ClaimManyRequest, ClaimRequest, Claimed, ClaimedMany, Cooling, DoneRecord, Grant,
    StoreTime, Unknown,
};
use crate::wait::answer;
use crate::{Fingerprint, Key, Nonce, StoreError, Token};

/// How many nonces one claim draws at most.
const NONCES: u32 = 3;

/// What came of a claim.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "work only when `Granted`; dropped, a granted claim is released"]
pub enum Attempt {
    /// The key is ours.
    Granted(Claim),
    /// Another owner holds it.
    Busy(Busy),
    /// The work is finished, its result is kept.
    Done(DoneRecord),
    /// Nobody is granted the key for a while yet.
    Cooling(Cooling),
    /// The work was begun, and nobody knows how it ended.
    Unknown(Unknown),
}

/// What came of a claim of several keys.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "work only when `Granted`; dropped, a granted claim is released"]
pub enum AttemptMany {
    /// All keys are ours.
    Granted(Claim),
    /// None is: this key stands in the way.
    Refused {
        /// The key.
        key: Key,
        /// What a claim of it alone would have come to. Never [`Attempt::Granted`].
        by: Attempt,
    },
}

pub(super) async fn one(
    inner: &Arc<Inner>,
    key: Key,
    fingerprint: Option<Fingerprint>,
    terms: &Terms,
    floor: Token,
) -> Result<Attempt, StoreError> {
    let ask = Ask {
        inner,
        keys: Keys::One(key),
        fingerprint,
        terms,
        floor,
    };
    Ok(match ask.claim().await? {
        Outcome::Granted(claim) => Attempt::Granted(claim),
        Outcome::Refused(_, by) => by,
    })
}

pub(super) async fn many(
    inner: &Arc<Inner>,
    keys: &[Key],
    terms: &Terms,
    floor: Token,
) -> Result<AttemptMany, StoreError> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() {
        return Err(StoreError::Unsupported("a claim of no keys"));
    }
    let ask = Ask {
        inner,
        keys: Keys::Many(keys.into()),
        fingerprint: None,
        terms,
        floor,
    };
    Ok(match ask.claim().await? {
        Outcome::Granted(claim) => AttemptMany::Granted(claim),
        Outcome::Refused(key, by) => AttemptMany::Refused { key, by },
    })
}

struct Ask<'a> {
    inner: &'a Arc<Inner>,
    keys: Keys,
    fingerprint: Option<Fingerprint>,
    terms: &'a Terms,
    floor: Token,
}

enum Outcome {
    Granted(Claim),
    Refused(Key, Attempt),
}

/// One answer of the store, for one key or several.
enum Reply {
    Granted(Grant),
    /// The standing grant of this very nonce.
    Mine(Grant),
    /// Of this nonce nothing can come any more.
    Spent,
    Refused(Key, Attempt),
}

impl Reply {
    fn to(key: Key, claimed: Claimed) -> Self {
        match claimed {
            Claimed::Granted(grant) => Reply::Granted(grant),
            Claimed::Mine {
                token,
                rest,
                attempt,
            } => Reply::Mine(Grant {
                token,
                lease: rest,
                attempt,
                // The answer that told it was lost.
                took_over: None,
            }),
            Claimed::Ended | Claimed::TooLate => Reply::Spent,
            Claimed::Busy(busy) => Reply::Refused(key, Attempt::Busy(busy)),
            Claimed::Done(done) => Reply::Refused(key, Attempt::Done(done)),
            Claimed::Cooling(cooling) => Reply::Refused(key, Attempt::Cooling(cooling)),
            Claimed::Unknown(unknown) => Reply::Refused(key, Attempt::Unknown(unknown)),
        }
    }
}

impl Ask<'_> {
    async fn claim(&self) -> Result<Outcome, StoreError> {
        self.inner.staff()?;
        for nonces in 0..NONCES {
            if nonces > 0 {
                // An engine whose list of spent nonces is full refuses, by `not_after`, all that may be
                // copies of them: a moment later this claim is none.
                let clock = &self.inner.clock;
                let pause = self.terms.attempt_timeout() / 4;
                clock.sleep_until(clock.now() + pause).await;
            }
            if let Some(outcome) = self.under_one_nonce().await? {
                return Ok(outcome);
            }
        }
        Err(StoreError::unavailable(
            "the store's grants came too late to be of use, or it judged every call too late",
        ))
    }

    /// `None`: of this nonce nothing can come any more, and nothing is left of it.
    async fn under_one_nonce(&self) -> Result<Option<Outcome>, StoreError> {
        let clock = &*self.inner.clock;
        let timing = self.terms.timing();
        let mut doubt = Doubt::new(
            self.inner,
            self.keys.clone(),
            Nonce::draw(&*self.inner.entropy),
            self.terms,
        );
        let mut sends = 0;
        loop {
            sends += 1;
            let sent = clock.now();
            // A claim that has begun is not cut short: a copy of it may be in doubt.
            let pass = match &self.inner.circuit {
                Some(circuit) if sends == 1 => Some(circuit.admit(sent)?),
                _ => None,
            };
            let not_after = doubt.send();
            let reply = answer(
                clock,
                sent + timing.attempt,
                self.send(doubt.forget.nonce, not_after),
            )
            .await;
            if let Some(pass) = &pass {
                pass.tell(&reply, clock.now());
            }
            let (grant, repeated) = match reply {
                Ok(reply) => {
                    doubt.answered();
                    match reply {
                        Reply::Granted(grant) => (grant, false),
                        Reply::Mine(grant) => (grant, true),
                        Reply::Spent => {
                            doubt.settle(clock).await?;
                            return Ok(None);
                        }
                        Reply::Refused(key, by) => return Ok(Some(Outcome::Refused(key, by))),
                    }
                }
                Err(error) => {
                    if !error.is_ambiguous() {
                        doubt.answered();
                    }
                    // Without a copy in doubt the caller decides whether to come again.
                    if !doubt.is_open() || !error.is_retryable() || sends == SENDS {
                        return Err(error);
                    }
                    clock.sleep_until(sent + doubt.pause()).await;
                    continue;
                }
            };

            // `Mine` grants nothing: what is left counts from before this send, never a whole lease again.
            let timing = Timing {
                lease: if repeated { timing.lease } else { grant.lease },
                ..timing
            };
            let hold = self.hold(&doubt, timing, sent, grant);
            let stop_at = hold.lock().stop_at();
            // etcd #11456: a lease that died on the way was handed out as a lock.
            if !timing.worth_having(clock.now(), stop_at) {
                doubt.granted();
                doubt.settle(clock).await?;
                return Ok(None);
            }
            doubt.disarm();
            return Ok(Some(Outcome::Granted(Claim::begin(self.inner, hold, sent))));
        }
    }

    fn hold(
        &self,
        doubt: &Doubt<'_>,
        timing: Timing,
        sent: crate::Moment,
        grant: Grant,
    ) -> Arc<Hold> {
        let nonce = doubt.forget.nonce;
        let [a, b, c, d, e, f, g, h, ..] = *nonce.as_bytes();
        let jitter = Jitter::new(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        Arc::new(Hold {
            keys: self.keys.clone(),
            nonce,
            token: grant.token,
            fingerprint: self.fingerprint,
            terms: self.terms.clone(),
            timing,
            attempt: grant.attempt,
            took_over: grant.took_over,
            not_after: doubt.forget.not_after,
            state: Mutex::new(HoldState::granted(
                self.terms,
                timing,
                sent,
                grant.lease,
                jitter,
            )),
            changed: Notify::new(),
        })
    }

    async fn send(&self, nonce: Nonce, not_after: StoreTime) -> Result<Reply, StoreError> {
        match &self.keys {
            Keys::One(key) => {
                let request = ClaimRequest {
                    key: *key,
                    nonce,
                    fingerprint: self.fingerprint,
                    settings: self.terms.settings(),
                    floor: self.floor,
                    not_after,
                };
                Ok(Reply::to(*key, self.inner.store.dyn_claim(request).await?))
            }
            Keys::Many(keys) => {
                let Some(store) = &self.inner.many else {
                    return Err(StoreError::Unsupported(
                        "several keys: build the keeper with Keeper::builder_many",
                    ));
                };
                let request = ClaimManyRequest {
                    keys,
                    nonce,
                    settings: self.terms.settings(),
                    floor: self.floor,
                    not_after,
                };
                Ok(match store.dyn_claim_many(request).await? {
                    ClaimedMany::Granted(grant) => Reply::Granted(grant),
                    ClaimedMany::Refused { key, by } => Reply::to(key, by),
                })
            }
        }
    }
}
