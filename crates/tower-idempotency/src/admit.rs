//! Claims the key of a request: it runs, or it is answered from what the store knows.

use std::time::Duration;

use tower_claim::store::{Busy, DoneRecord, Value};
use tower_claim::transaction::TransactionSlot;
use tower_claim::{Attempt, Fingerprint, Key, Moment, Place, StoreError};

use crate::inside::Hold;
use crate::quota::{Counted, Seat, Tenant};
use crate::record::Marker;
use crate::reply::Reply;
use crate::shared::Shared;
use crate::wait::{Follower, Next, Told};
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

/// What becomes of a request with a key.
pub(crate) enum Admitted {
    /// It runs, holding its key so, in this place, so far on its way; and is counted, where tenants have quotas.
    Run(Hold, Place, Way, Option<Seat>),
    /// It runs without one: the store did not answer, and the layer is told to go on then.
    RunUnprotected,
    Answer(Reply),
}

/// What a claim is answered, wherever it is made.
pub(crate) enum Claimed {
    Granted(Hold),
    /// Never [`Attempt::Granted`].
    Refused(Attempt),
}

/// What came of one claim.
enum Asked {
    Granted(Hold, Place, Option<Seat>),
    Told(Told),
    /// It was not sent.
    Refused(Reply),
}

/// What a claim's answer means.
enum Judged {
    /// The first run is going.
    Busy(Busy),
    /// The work goes on there.
    GoOn(Way),
    Answer(Reply),
}

impl Shared {
    /// Claims the key, and waits where the layer is told to, with so many bytes in memory. `before_wait` is called
    /// once, before the first wait: what others may need is given back there. Where claims are made inside of
    /// transactions, that of the run is then in the slot.
    ///
    /// # Cancellation
    ///
    /// A drop leaves nothing behind: the keeper gives back a claim that was under way, or it is rolled back, and another
    /// who waits asks.
    pub(crate) async fn admit(
        &self,
        (key, tenant): (Key, Option<Tenant>),
        print: Fingerprint,
        bytes: usize,
        slot: &TransactionSlot,
        before_wait: impl FnOnce() + Send,
    ) -> Admitted {
        let deadline = match self.on_busy {
            OnBusy::Reject => None,
            OnBusy::Wait(limit) => Some(self.clock().now() + limit),
        };
        let mut before_wait = Some(before_wait);
        let mut follower: Option<Follower> = None;
        let mut left = Duration::ZERO;
        let mut way = Way::begin(key);
        let mut steps = 0;
        loop {
            if !self.may_begin(&way) {
                return Admitted::Answer(self.look_on(&way, print).await);
            }
            // Who has waited asks in its turn, and not where another with its payload has just been told.
            let mut turn = None;
            if let (Some(follower), Some(deadline)) = (&mut follower, deadline) {
                if !follower.move_to(way.key) {
                    return Admitted::Answer(self.in_progress(left));
                }
                let next = tokio::select! {
                    biased;
                    next = follower.next() => next,
                    () = self.clock().sleep_until(deadline) => {
                        return Admitted::Answer(self.in_progress(left));
                    }
                };
                match next {
                    Next::Turn(mine) => turn = Some(mine),
                    Next::Done(done) => {
                        let reply = self.replay(way.key, &done);
                        return Admitted::Answer(reply.first_seen_by(way.first_seen));
                    }
                    Next::Failed(error) => return Admitted::Answer(self.store_failed(&error)),
                    Next::Told(told) => match self.judge(way, &told, steps).await {
                        Judged::GoOn(next) => {
                            way = next;
                            steps += 1;
                            continue;
                        }
                        Judged::Answer(reply) => return Admitted::Answer(reply),
                        // Nobody tells that: whoever is told follows, and all with it.
                        Judged::Busy(_) => continue,
                    },
                }
            }
            let told = match self.ask(way, print, tenant, slot).await {
                Asked::Granted(hold, place, seat) => {
                    if let Some(follower) = &mut follower {
                        follower.follows(hold.token());
                    }
                    return Admitted::Run(hold, place, way, seat);
                }
                Asked::Refused(reply) => return Admitted::Answer(reply),
                Asked::Told(told) => told,
            };
            // Not where a run of this key was seen already: it waits for that one, or is led on from it.
            if let Err(error) = &told.attempt
                && steps == 0
                && follower.is_none()
                && self.runs_unprotected(error)
            {
                return Admitted::RunUnprotected;
            }
            let judged = self.judge(way, &told, steps).await;
            let is_for_all = match &judged {
                Judged::Answer(_) => true,
                // Else the next claim tells.
                Judged::GoOn(next) => next.key != way.key,
                Judged::Busy(_) => false,
            };
            if let (Some(follower), Some(turn)) = (&follower, turn.take_if(|_| is_for_all)) {
                follower.tell(turn, told);
            }
            let busy = match judged {
                Judged::Answer(reply) => return Admitted::Answer(reply),
                Judged::GoOn(next) => {
                    way = next;
                    steps += 1;
                    continue;
                }
                Judged::Busy(busy) => busy,
            };
            left = busy.expires_in;
            if deadline.is_none_or(|deadline| deadline <= self.clock().now()) {
                return Admitted::Answer(self.in_progress(left));
            }
            if let Some(before_wait) = before_wait.take() {
                before_wait();
            }
            match &mut follower {
                Some(follower) => follower.follows(busy.token),
                None => {
                    let follow = &self.followers;
                    follower = follow.follow(way.key, busy.token, Some(print), bytes);
                    if follower.is_none() {
                        return Admitted::Answer(self.in_progress(left));
                    }
                }
            }
        }
    }

    /// One claim. A repeat of a run that is inside of its transaction here is told so without one: it takes no connection,
    /// and no room of its tenant's.
    async fn ask(
        &self,
        way: Way,
        print: Fingerprint,
        tenant: Option<Tenant>,
        slot: &TransactionSlot,
    ) -> Asked {
        let inside = self.inside.as_ref();
        if let Some(busy) = inside.and_then(|inside| inside.here.meet(way.key, print)) {
            return Asked::Told(Told {
                print,
                sent: self.clock().now(),
                attempt: Ok(Attempt::Busy(busy)),
            });
        }
        // Before the claim: else a drain could be over, and its process gone, before the claim is.
        let place = match self.detached.reserve() {
            Ok(place) => place,
            Err(why) => return Asked::Refused(self.refused(why.into()).into()),
        };
        let counted = match self.count(way.key, tenant).await {
            Ok(counted) => counted,
            Err(reply) => return Asked::Refused(reply),
        };
        let sent = self.clock().now();
        let claimed = match inside {
            Some(inside) => self.begin_inside(inside, way, print, slot).await,
            None => self.claim_outside(way, print).await,
        };
        let attempt = match claimed {
            Ok(Claimed::Granted(hold)) => {
                return Asked::Granted(hold, place, counted.map(Counted::granted));
            }
            Ok(Claimed::Refused(attempt)) => Ok(attempt),
            Err(error) => Err(error),
        };
        Asked::Told(Told {
            print,
            sent,
            attempt,
        })
    }

    async fn claim_outside(&self, way: Way, print: Fingerprint) -> Result<Claimed, StoreError> {
        let terms = self.terms_on(way);
        let attempt = self
            .keeper
            .claim(way.key, Some(print), terms, way.floor)
            .await?;
        Ok(match attempt {
            Attempt::Granted(claim) => Claimed::Granted(Hold::Claim(claim)),
            refused => Claimed::Refused(refused),
        })
    }

    /// What a claim's answer means for a repeat.
    async fn judge(&self, way: Way, told: &Told, steps: u32) -> Judged {
        match &told.attempt {
            Ok(Attempt::Busy(busy)) if busy.same_fingerprint => return Judged::Busy(busy.clone()),
            Ok(met) if steps < LONGEST_WAY => match self.lead_on(way, met, told.sent).await {
                Ok(Some(next)) => return Judged::GoOn(next),
                Ok(None) => {}
                Err(error) => return Judged::Answer(self.store_failed(&error)),
            },
            _ => {}
        }
        let reply = self.answer(way.key, &told.attempt);
        Judged::Answer(reply.first_seen_by(way.first_seen))
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
                let now = self.clock().unix_time();
                reconcile.lead_on(&way, unknown.token, keep, now).await?;
                // The record tells, by the next claim, where to.
                Ok(Some(way))
            }
            _ => Ok(None),
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
