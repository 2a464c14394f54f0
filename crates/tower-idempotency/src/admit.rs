//! Claims the key of a request: it runs, or it is answered from what the store knows.

use std::time::Duration;

use tower_claim::store::{DoneRecord, State, Value, Watched};
use tower_claim::{
    Attempt, Claim, Code, Fingerprint, Key, Moment, Place, Refusal, StoreError, Token,
};

use crate::quota::{Counted, Seat, Tenant};
use crate::record::{KeptResponse, Marker};
use crate::reply::Reply;
use crate::shared::Shared;
use crate::way::{LONGEST_WAY, Way};

/// What a repeat does while the first run is going.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnBusy {
    /// Answers 409 `in-progress` at once. The default.
    #[default]
    Reject,
    /// Waits so long for the first run's answer, and is replayed it; then 409 all the same.
    Wait(Duration),
}

/// How a watch that ends while the hold goes on (a lease that lapses over and over, a store that is
/// fooled) is slowed down.
const WATCH_PAUSE: Duration = Duration::from_millis(50);

/// What becomes of a request with a key.
pub(crate) enum Admitted {
    /// It runs, under this claim, in this place, so far on its way; and is counted, where tenants have quotas.
    Run(Claim, Place, Way, Option<Seat>),
    /// It runs without one: the store did not answer, and the layer is told to go on then.
    RunUnprotected,
    Answer(Reply),
}

impl Shared {
    /// Claims the key, and waits where the layer is told to, with so many bytes in memory. `before_wait` is called
    /// once, before the first wait: what others may need is given back there.
    ///
    /// # Cancellation
    ///
    /// A drop leaves nothing behind: the keeper gives back a claim that was under way.
    pub(crate) async fn admit(
        &self,
        (key, tenant): (Key, Option<Tenant>),
        print: Fingerprint,
        bytes: usize,
        before_wait: impl FnOnce() + Send,
    ) -> Admitted {
        let deadline = match self.on_busy {
            OnBusy::Reject => None,
            OnBusy::Wait(limit) => Some(self.clock().now() + limit),
        };
        let mut before_wait = Some(before_wait);
        let mut watched = Token::ZERO;
        let mut way = Way::begin(key);
        let mut steps = 0;
        loop {
            if !self.may_begin(&way) {
                return Admitted::Answer(self.look_on(&way, print).await);
            }
            let key = way.key;
            // Before the claim: else a drain could be over, and its process gone, before the claim is.
            let place = match self.detached.reserve() {
                Ok(place) => place,
                Err(why) => return Admitted::Answer(self.refused(why.into()).into()),
            };
            let counted = match self.count(key, tenant).await {
                Ok(counted) => counted,
                Err(reply) => return Admitted::Answer(reply),
            };
            let sent = self.clock().now();
            let claimed = self
                .keeper
                .claim(key, Some(print), self.terms_on(way), way.floor)
                .await;
            let busy = match claimed {
                Ok(Attempt::Granted(claim)) => {
                    let seat = counted.map(Counted::granted);
                    return Admitted::Run(claim, place, way, seat);
                }
                Ok(Attempt::Busy(busy)) => busy,
                // Not where a run of this key was seen already: it waits for that one, or is led on from it.
                Err(error)
                    if steps == 0 && before_wait.is_some() && self.runs_unprotected(&error) =>
                {
                    return Admitted::RunUnprotected;
                }
                Ok(other) if steps < LONGEST_WAY => match self.lead_on(way, &other, sent).await {
                    Ok(Some(next)) => {
                        way = next;
                        steps += 1;
                        continue;
                    }
                    Ok(None) => return Admitted::Answer(self.answer(key, Ok(other))),
                    Err(error) => return Admitted::Answer(self.store_failed(&error)),
                },
                other => return Admitted::Answer(self.answer(key, other)),
            };
            drop((place, counted));
            if !busy.same_fingerprint {
                return Admitted::Answer(self.reused());
            }
            let in_progress = || self.in_progress(busy.expires_in);
            let Some(deadline) = deadline.filter(|d| *d > self.clock().now()) else {
                return Admitted::Answer(in_progress());
            };
            if let Some(before_wait) = before_wait.take() {
                before_wait();
            }
            let Some(following) =
                self.followers
                    .follow(self.keeper.store(), key, busy.token, bytes)
            else {
                return Admitted::Answer(in_progress());
            };
            let pause = (busy.token == watched).then_some(WATCH_PAUSE);
            watched = busy.token;
            let over = async {
                if let Some(pause) = pause {
                    self.clock().sleep_until(self.clock().now() + pause).await;
                }
                following.over().await
            };
            tokio::select! {
                biased;
                seen = over => match &*seen {
                    // By another token it may be another request's: the claim tells.
                    Ok(Watched::Done(done)) if done.token == busy.token => {
                        return Admitted::Answer(self.replay(key, done));
                    }
                    Ok(_) => {}
                    Err(error) => return Admitted::Answer(self.store_failed(error)),
                },
                () = self.clock().sleep_until(deadline) => {
                    return Admitted::Answer(in_progress());
                }
            }
        }
    }

    /// Where the work goes on: the record leads there, or its outcome is unknown and there is a hook to ask.
    /// `None`: nowhere. The store was asked at `sent`.
    async fn lead_on(
        &self,
        way: Way,
        met: &Attempt,
        sent: Moment,
    ) -> Result<Option<Way>, StoreError> {
        match met {
            Attempt::Done(done) if done.same_fingerprint => Ok(lead(done)
                // Without a hook nobody can be asked.
                .filter(|marker| *marker == Marker::Run || self.reconcile.is_some())
                .map(|marker| {
                    way.go_on(marker.leads_to(way.key, done.token), sent + done.keep_left)
                })),
            Attempt::Unknown(unknown) if unknown.same_fingerprint && !way.asks() => {
                let Some(reconcile) = &self.reconcile else {
                    return Ok(None);
                };
                let keep = self.marker_keep();
                reconcile.lead_on(way.key, unknown.token, keep).await?;
                // The record tells, by the next claim, where to.
                Ok(Some(way))
            }
            _ => Ok(None),
        }
    }

    /// The answer to a repeat that neither runs nor waits.
    fn answer(&self, key: Key, claimed: Result<Attempt, StoreError>) -> Reply {
        match claimed {
            Ok(Attempt::Done(done)) if done.same_fingerprint => self.replay(key, &done),
            Ok(Attempt::Cooling(cooling)) if cooling.same_fingerprint => {
                self.in_progress(cooling.remaining)
            }
            Ok(Attempt::Unknown(unknown)) if unknown.same_fingerprint => self.unknown(),
            Ok(_) => self.reused(),
            Err(error) => self.store_failed(&error),
        }
    }

    /// What a repeat would be told, for a run whose outcome was not accepted: it was taken over, and what
    /// it did must not be sent as if it stood. Never runs anything.
    ///
    /// Who took over may have given the key back, and another payload may have it by now.
    pub(crate) async fn answer_after_loss(&self, key: Key, print: Fingerprint) -> Reply {
        let store = self.keeper.store();
        let record = match store.dyn_peek(key).await {
            Ok(Some(record)) => record,
            Ok(None) => return self.in_progress(Duration::ZERO),
            Err(error) => return self.store_failed(&error),
        };
        if record.state != State::Free && record.fingerprint != Some(print) {
            return self.reused();
        }
        match record.state {
            State::Unknown => self.unknown(),
            State::Done => match self.finished(key, record.token).await {
                Ok(Some(done)) => self.replay(key, &done),
                Ok(None) => self.in_progress(Duration::ZERO),
                Err(error) => self.store_failed(&error),
            },
            _ => self.in_progress(record.expires_in),
        }
    }

    /// The finished record, if it still is one. A watch of it is answered at once; the limit, longer than any store
    /// takes for a call, is for one that is fooled.
    pub(crate) async fn finished(
        &self,
        key: Key,
        token: Token,
    ) -> Result<Option<DoneRecord>, StoreError> {
        let late = self.clock().now() + self.terms.lease();
        tokio::select! {
            biased;
            seen = self.keeper.store().dyn_watch(key, token) => Ok(match seen? {
                Watched::Done(done) if done.token == token => Some(done),
                _ => None,
            }),
            () = self.clock().sleep_until(late) => {
                Err(StoreError::unavailable("a finished record was not told within a lease"))
            }
        }
    }

    /// Whether there is a record of this key that binds.
    pub(crate) async fn taken(&self, key: Key) -> Result<bool, StoreError> {
        let record = self.keeper.store().dyn_peek(key).await?;
        Ok(record.is_some_and(|record| record.state != State::Free))
    }

    /// The same for who answers a request.
    pub(crate) async fn is_taken(&self, key: Key) -> Result<bool, Reply> {
        let taken = self.taken(key).await;
        taken.map_err(|error| self.store_failed(&error))
    }

    pub(crate) fn replay(&self, key: Key, done: &DoneRecord) -> Reply {
        match lead(done) {
            None => {}
            // It waits for the hook of a layer that has one.
            Some(_) if self.reconcile.is_none() => return self.unknown(),
            Some(_) => return self.in_progress(Duration::ZERO),
        }
        match self.kept_response(key, done) {
            Ok(Some(kept)) if kept.is_whole => {
                self.counters.replays.add();
                Reply::Replay(kept)
            }
            Ok(head) => {
                self.counters.not_kept.add();
                Reply::NotKept(head)
            }
            Err(refusal) => refusal.into(),
        }
    }

    /// The response of a finished record, or its head; `None` where neither was kept.
    pub(crate) fn kept_response(
        &self,
        key: Key,
        done: &DoneRecord,
    ) -> Result<Option<KeptResponse>, Refusal> {
        let Value::Kept(bytes) = &done.value else {
            return Ok(None);
        };
        self.read_record(key, bytes).map(Some).map_err(|why| {
            // The work is done, so it is not run again; what it answered cannot be told. That is for people to
            // mend, hence no 409, which would read as the client's affair.
            self.counters.store_failures.add();
            #[cfg(feature = "tracing")]
            tracing::error!(key = key.prefix(), %why, "a kept response cannot be read");
            Refusal::new(Code::StoreUnavailable)
                .with_reason("record-unreadable")
                .with_detail(why.to_string())
        })
    }

    pub(crate) fn in_progress(&self, left: Duration) -> Reply {
        self.counters.in_progress.add();
        Refusal::new(Code::InProgress).with_retry_after(left).into()
    }

    pub(crate) fn unknown(&self) -> Reply {
        self.counters.outcome_unknown.add();
        Code::OutcomeUnknown.into()
    }

    pub(crate) fn reused(&self) -> Reply {
        self.counters.key_reused.add();
        Code::KeyReused.into()
    }

    pub(crate) fn store_failed(&self, error: &StoreError) -> Reply {
        self.store_refusal(error).into()
    }

    pub(crate) fn store_refusal(&self, error: &StoreError) -> Refusal {
        self.counters.store_failures.add();
        #[cfg(feature = "tracing")]
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "no answer: the store failed"
        );
        let refusal = Refusal::new(Code::StoreUnavailable);
        match error {
            StoreError::Full => refusal.with_reason("full"),
            StoreError::Garbled { .. } => refusal.with_reason("record-unreadable"),
            _ => refusal,
        }
    }
}

/// Where the work goes on, if the record leads on.
pub(crate) fn lead(done: &DoneRecord) -> Option<Marker> {
    match &done.value {
        Value::Kept(bytes) => Marker::read(bytes),
        _ => None,
    }
}
