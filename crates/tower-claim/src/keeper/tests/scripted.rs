//! A naive store that follows a script: loses calls and replies, delays, fails, says what it is told.
//! Correct in what it applies, so that only the keeper can be wrong.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::store::*;
use crate::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Claim,
    Renew,
    Mark,
    Finish,
    Release,
    /// The keeper's own connection is made.
    Connect,
}

/// What happens to one call.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Pass,
    /// Applied, never answered.
    LoseReply,
    /// Neither applied nor answered.
    LoseCall,
    /// Not answered, and applied this much later.
    ArriveLate(Duration),
    /// Takes this long before it is applied, and as long again before it is answered.
    Slow(Duration),
    /// Applied and answered; meanwhile the owner's machine slept this long.
    Suspend(Duration),
    Unavailable,
    /// Applied, and the connection broke.
    Ambiguous,
    Garbled,
    /// One record of a batch cannot be read; alone each can, slowly.
    GarbledTogether,
    Panic,
    Claimed(Claimed),
    Renewed(Renewed),
}

#[derive(Debug, Default, Clone)]
struct Rec {
    nonce: Option<Nonce>,
    token: u64,
    held: bool,
    expires: Duration,
    marked: bool,
    hold: bool,
    broken: bool,
    value: Option<Value>,
    spent: Vec<Nonce>,
}

impl Rec {
    fn owns(&self, owner: Owner) -> bool {
        self.nonce == Some(owner.nonce) && self.token == owner.token.get() && !self.broken
    }
}

#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) at: Duration,
    pub(super) op: Op,
    pub(super) nonce: Nonce,
}

#[derive(Debug, Default)]
struct Inner {
    recs: HashMap<Key, Rec>,
    script: HashMap<Op, VecDeque<Act>>,
    always: HashMap<Op, Act>,
    log: Vec<Sent>,
    /// The `not_after` of each claim, in the order sent.
    limits: Vec<StoreTime>,
    revoke: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Scripted {
    pub(super) clock: Arc<SleepyClock>,
    pub(super) forgetful: bool,
    /// What it grants, whatever is asked.
    pub(super) lease: Duration,
    inner: Arc<Mutex<Inner>>,
}

/// Paused time, and a machine that can sleep: the owner's clock jumps, its timers and the store's clock
/// do not.
#[derive(Debug)]
pub(super) struct SleepyClock {
    pub(super) real: TokioClock,
    slept: Mutex<Duration>,
}

impl SleepyClock {
    pub(super) fn sleep(&self, by: Duration) {
        *self.slept.lock().unwrap() += by;
    }
}

impl Clock for SleepyClock {
    fn now(&self) -> Moment {
        self.real.now() + *self.slept.lock().unwrap()
    }
    fn unix_time(&self) -> Duration {
        self.real.unix_time()
    }
    fn sleep_until(&self, at: Moment) -> futures_util::future::BoxFuture<'static, ()> {
        self.real.sleep_until(at - *self.slept.lock().unwrap())
    }
}

impl Scripted {
    pub(super) fn new() -> Self {
        Self {
            clock: Arc::new(SleepyClock {
                real: TokioClock::new(),
                slept: Mutex::default(),
            }),
            forgetful: false,
            lease: LEASE,
            inner: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn time(&self) -> Duration {
        self.clock.real.now().elapsed()
    }

    /// What happens to the next calls of this kind, in order; later ones pass.
    pub(super) fn next(&self, op: Op, acts: impl IntoIterator<Item = Act>) {
        self.lock().script.entry(op).or_default().extend(acts);
    }

    /// What happens to every call of this kind for which nothing else is said.
    pub(super) fn always(&self, op: Op, act: Act) {
        self.lock().always.insert(op, act);
    }

    pub(super) fn ask_revoke(&self) {
        self.lock().revoke = true;
    }

    /// An operator breaks the hold.
    pub(super) fn break_claim(&self, key: Key) {
        let mut inner = self.lock();
        let rec = inner.recs.get_mut(&key).unwrap();
        rec.broken = true;
        rec.token += 1;
    }

    pub(super) fn sent(&self, op: Op) -> Vec<Sent> {
        let inner = self.lock();
        inner.log.iter().filter(|s| s.op == op).cloned().collect()
    }

    pub(super) fn log(&self) -> Vec<Sent> {
        self.lock().log.clone()
    }

    pub(super) fn limits(&self) -> Vec<StoreTime> {
        self.lock().limits.clone()
    }

    pub(super) fn is_held(&self, key: Key) -> bool {
        let now = self.time();
        self.lock()
            .recs
            .get(&key)
            .is_some_and(|r| r.held && now < r.expires)
    }

    pub(super) fn value(&self, key: Key) -> Option<Value> {
        self.lock().recs.get(&key)?.value.clone()
    }

    fn fail_garbled<T>(&self) -> Result<T, StoreError> {
        Err(StoreError::Garbled {
            key_prefix: String::new(),
            source: "scripted".into(),
        })
    }

    async fn play<T: Send + 'static>(
        &self,
        op: Op,
        nonce: Nonce,
        apply: impl Fn(&mut Inner, Duration) -> T + Send + 'static,
        says: impl Fn(Act) -> Option<T>,
    ) -> Result<T, StoreError> {
        let act = {
            let at = self.time();
            let mut inner = self.lock();
            inner.log.push(Sent { at, op, nonce });
            let scripted = inner.script.get_mut(&op).and_then(VecDeque::pop_front);
            scripted.unwrap_or_else(|| inner.always.get(&op).cloned().unwrap_or(Act::Pass))
        };
        let apply_now = |this: &Self| {
            let now = this.time();
            apply(&mut this.lock(), now)
        };
        match act {
            Act::Pass => Ok(apply_now(self)),
            Act::LoseReply => {
                apply_now(self);
                std::future::pending().await
            }
            Act::LoseCall => std::future::pending().await,
            Act::ArriveLate(by) => {
                let this = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    let now = this.time();
                    apply(&mut this.lock(), now);
                });
                std::future::pending().await
            }
            Act::Slow(by) => {
                tokio::time::sleep(by).await;
                let answer = apply_now(self);
                tokio::time::sleep(by).await;
                Ok(answer)
            }
            Act::Suspend(by) => {
                let answer = apply_now(self);
                self.clock.sleep(by);
                Ok(answer)
            }
            Act::Unavailable => Err(StoreError::unavailable("scripted")),
            Act::Ambiguous => {
                apply_now(self);
                Err(StoreError::ambiguous("scripted"))
            }
            Act::Garbled => self.fail_garbled(),
            Act::GarbledTogether => {
                tokio::time::sleep(LEASE / 60).await;
                Ok(apply_now(self))
            }
            Act::Panic => panic!("scripted"),
            said => says(said).map_or_else(|| panic!("not an act of {op:?}"), Ok),
        }
    }
}

fn claim(
    inner: &mut Inner,
    now: Duration,
    keys: &[Key],
    nonce: Nonce,
    settings: &Settings,
    floor: Token,
    not_after: StoreTime,
) -> ClaimedMany {
    let refused = |key: &Key, by| ClaimedMany::Refused { key: *key, by };
    if now.as_micros() as u64 > not_after.as_micros() {
        return refused(&keys[0], Claimed::TooLate);
    }
    let mut mine = 0;
    for key in keys {
        let rec = inner.recs.entry(*key).or_default();
        let live = rec.held && now < rec.expires;
        if live && rec.nonce == Some(nonce) {
            mine += 1;
        } else if rec.spent.contains(&nonce) || rec.nonce == Some(nonce) {
            return refused(key, Claimed::Ended);
        } else if let Some(value) = &rec.value {
            let done = DoneRecord {
                token: Token::new(rec.token).unwrap(),
                same_fingerprint: true,
                value: value.clone(),
                finished: Duration::ZERO,
                keep_left: Duration::MAX,
            };
            return refused(key, Claimed::Done(done));
        } else if live || (rec.held && (rec.hold || rec.marked)) {
            let busy = Busy {
                token: Token::new(rec.token).unwrap(),
                since: Duration::ZERO,
                expires_in: rec.expires.saturating_sub(now),
                same_fingerprint: true,
                label: Arc::from(""),
            };
            return refused(key, Claimed::Busy(busy));
        }
    }
    if mine == keys.len() {
        let rec = &inner.recs[&keys[0]];
        let by = Claimed::Mine {
            token: Token::new(rec.token).unwrap(),
            rest: rec.expires - now,
            attempt: 1,
        };
        return refused(&keys[0], by);
    }
    let last = keys.iter().map(|k| inner.recs[k].token).max().unwrap();
    let token = last.max(floor.get()) + 1;
    for key in keys {
        let rec = inner.recs.get_mut(key).unwrap();
        rec.spent.extend(rec.nonce.replace(nonce));
        rec.token = token;
        rec.held = true;
        rec.expires = now + settings.lease;
        rec.hold = settings.on_lapse == LapsePolicy::Hold;
        rec.marked = false;
        rec.broken = false;
    }
    ClaimedMany::Granted(Grant {
        token: Token::new(token).unwrap(),
        lease: settings.lease,
        attempt: 1,
        took_over: None,
    })
}

impl ClaimStore for Scripted {
    fn capabilities(&self) -> Capabilities {
        let engine = Capabilities::in_process("scripted");
        if self.forgetful {
            engine.with_weakened(Event::Failover, &[Promise::OneResult])
        } else {
            engine
        }
    }

    fn now(&self) -> StoreTime {
        StoreTime::from_micros(self.time().as_micros() as u64)
    }

    async fn claim(&self, r: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        let settings = r.settings.clone();
        let (key, nonce, floor, not_after) = (r.key, r.nonce, r.floor, r.not_after);
        self.lock().limits.push(not_after);
        let apply = move |inner: &mut Inner, now| match claim(
            inner,
            now,
            &[key],
            nonce,
            &settings,
            floor,
            not_after,
        ) {
            ClaimedMany::Granted(grant) => Claimed::Granted(grant),
            ClaimedMany::Refused { by, .. } => by,
        };
        let says = |act| match act {
            Act::Claimed(claimed) => Some(claimed),
            _ => None,
        };
        self.play(Op::Claim, nonce, apply, says).await
    }

    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        let beats = beats.to_vec();
        let all = beats.len();
        let lease = self.lease;
        let apply = move |inner: &mut Inner, now: Duration| {
            let revoke_asked = inner.revoke;
            let mut renew = |beat: &Beat| {
                let rec = inner.recs.entry(beat.owner.key).or_default();
                if rec.broken {
                    return Renewed::Lost(LostReason::Broken);
                }
                if !rec.owns(beat.owner) || !rec.held {
                    return Renewed::Lost(LostReason::Superseded);
                }
                if now >= rec.expires {
                    return Renewed::Lost(LostReason::Lapsed);
                }
                rec.expires = rec.expires.max(now + lease);
                Renewed::Renewed {
                    rest: rec.expires - now,
                    revoke_asked,
                }
            };
            beats.iter().map(&mut renew).collect::<Vec<_>>()
        };
        let says = |act| match act {
            Act::Renewed(renewed) => Some(vec![renewed; all]),
            _ => None,
        };
        let nonce = Nonce::from_bytes([all as u8; 16]);
        let together = matches!(
            self.lock().always.get(&Op::Renew),
            Some(Act::GarbledTogether)
        );
        if together && all > 1 {
            return self.fail_garbled();
        }
        self.play(Op::Renew, nonce, apply, says).await
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        let apply = move |inner: &mut Inner, now| {
            let rec = inner.recs.entry(owner.key).or_default();
            if !rec.owns(owner) || !rec.held {
                return Marked::Lost(LostReason::Superseded);
            }
            if now >= rec.expires {
                return Marked::Lost(LostReason::Lapsed);
            }
            rec.marked = true;
            Marked::Marked
        };
        self.play(Op::Mark, owner.nonce, apply, |_| None).await
    }

    async fn finish(&self, r: FinishRequest) -> Result<Finish, StoreError> {
        let nonce = r.owner.nonce;
        let apply = move |inner: &mut Inner, _| {
            let rec = inner.recs.entry(r.owner.key).or_default();
            if !rec.owns(r.owner) || (!rec.held && rec.value.is_none()) {
                return Finish::Lost;
            }
            rec.held = false;
            rec.value.get_or_insert(r.value.clone());
            Finish::Finished
        };
        self.play(Op::Finish, nonce, apply, |_| None).await
    }

    async fn release(&self, r: ReleaseRequest) -> Result<Release, StoreError> {
        let apply = move |inner: &mut Inner, _| {
            let rec = inner.recs.entry(r.key).or_default();
            let token = r.token.is_none_or(|t| t.get() == rec.token);
            if rec.value.is_some() {
                return Release::Lost;
            }
            if rec.nonce == Some(r.nonce) && token && rec.held {
                rec.held = false;
                return Release::Released;
            }
            rec.spent.push(r.nonce);
            Release::Already
        };
        self.play(Op::Release, r.nonce, apply, |_| None).await
    }

    async fn watch(&self, _: Key, _: Token) -> Result<Watched, StoreError> {
        Err(StoreError::Unsupported("watch"))
    }

    async fn peek(&self, _: Key) -> Result<Option<RecordView>, StoreError> {
        Err(StoreError::Unsupported("peek"))
    }

    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        let connected = |_: &mut Inner, _| ();
        let nobody = Nonce::from_bytes([0; 16]);
        self.play(Op::Connect, nobody, connected, |_| None).await?;
        Ok(Arc::new(self.clone()))
    }
}

impl ClaimMany for Scripted {
    async fn claim_many(&self, r: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        let (keys, settings) = (r.keys.to_vec(), r.settings.clone());
        let (nonce, floor, not_after) = (r.nonce, r.floor, r.not_after);
        let apply = move |inner: &mut Inner, now| {
            claim(inner, now, &keys, nonce, &settings, floor, not_after)
        };
        self.play(Op::Claim, nonce, apply, |_| None).await
    }

    async fn release_many(&self, all: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        let mut answers = Vec::new();
        for r in all {
            answers.push(self.release(*r).await?);
        }
        Ok(answers)
    }
}

pub(super) const LEASE: Duration = Duration::from_millis(1200);
