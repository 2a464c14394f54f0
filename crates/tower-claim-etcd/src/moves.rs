//! The moves: what each call writes, given what was read.

use std::time::Duration;

use tower_claim::store::{
    Beat, Broken, ClaimRequest, Claimed, Finish, FinishRequest, Grant, LostReason, Marked, Owner,
    Release, ReleaseRequest, Resolution, Resolved, Value,
};
use tower_claim::{Settings, StoreError, Token};

use crate::plan::{On, Plan, Sibling, Write, secs};
use crate::record::{Kept, Leases, Phase, Record, Seen, Standing};

/// What a call leads to.
pub(crate) enum Step<T> {
    /// Nothing is to be written.
    Answer(T),
    /// This, and the answer once it was written.
    Change(Plan, Done<T>),
}

/// The answer to a change: a function of the token it made.
pub(crate) type Done<T> = Box<dyn FnOnce(Token) -> T + Send>;

impl<T: 'static> Step<T> {
    fn change(plan: Plan, done: impl FnOnce(Token) -> T + Send + 'static) -> Self {
        Step::Change(plan, Box::new(done))
    }
}

/// What of a claim decides whether it is granted, and what it writes.
pub(crate) struct Ask<'a> {
    pub(crate) nonce: tower_claim::Nonce,
    pub(crate) fingerprint: Option<tower_claim::Fingerprint>,
    pub(crate) settings: &'a Settings,
    pub(crate) floor: Token,
    /// For so long at least the nonce is remembered.
    pub(crate) spent_secs: u64,
    /// The shortest lease that the server grants.
    pub(crate) least_secs: u64,
}

impl<'a> Ask<'a> {
    pub(crate) fn of(request: &ClaimRequest<'a>, spent_secs: u64, least_secs: u64) -> Self {
        Self {
            nonce: request.nonce,
            fingerprint: request.fingerprint,
            settings: request.settings,
            floor: request.floor,
            spent_secs,
            least_secs,
        }
    }

    pub(crate) fn lease_secs(&self) -> u64 {
        secs(self.settings.lease).max(self.least_secs).max(1)
    }
}

pub(crate) fn claim(seen: &Seen, ask: &Ask<'_>, now: u64) -> Result<Step<Claimed>, StoreError> {
    if let Some(refusal) = seen.refusal(ask.nonce, ask.fingerprint, now) {
        return Ok(Step::Answer(refusal));
    }
    let token = seen.next_token(ask.floor)?;
    let (plan, grant) = grant(seen, ask, token, now);
    Ok(Step::change(plan, move |token| {
        Claimed::Granted(Grant { token, ..grant })
    }))
}

/// Hands the key to a claim that nothing refuses.
pub(crate) fn grant(seen: &Seen, ask: &Ask<'_>, token: Token, now: u64) -> (Plan, Grant) {
    let terms = ask.settings;
    let lease = ask.lease_secs();
    let (took_over, before) = seen.took_over(now);
    let attempt = before.saturating_add(1);
    let mut plan = Plan::default();
    let live = plan.grant(lease);
    let keep = plan.grant(lease.saturating_add(secs(terms.unfinished_keep)));
    let spent = plan.grant(ask.spent_secs);
    let mut cool = On::Nothing;
    if !terms.cooling.is_zero() {
        let span = lease.saturating_add(secs(terms.cooling));
        cool = plan.grant(span);
        plan.write(Write::Put(Sibling::Cool, now + span * 1000, cool));
    }
    if !terms.min_hold.is_zero() {
        let span = secs(terms.min_hold);
        let wait = plan.grant(span);
        plan.write(Write::Put(Sibling::Wait, now + span * 1000, wait));
    }
    plan.write(Write::Put(Sibling::Live, now, live));
    plan.write(Write::Spend(spent));
    let record = Record {
        phase: Phase::Held,
        nonce: ask.nonce,
        token,
        by_revision: true,
        fingerprint: ask.fingerprint,
        terms: terms.clone(),
        lease_secs: lease,
        attempt,
        progress: 0,
        marked: false,
        revoke_asked: false,
        since: now,
        last_beat: now,
        until: 0,
        leases: Leases { live, cool, keep },
    };
    plan.write(Write::Record(Box::new(record), keep));
    raise(&mut plan, seen, token);
    if let Some(Kept { record: old, .. }) = &seen.record {
        plan.revoke([old.leases.live, old.leases.cool, old.leases.keep]);
    }
    let grant = Grant {
        token,
        lease: Duration::from_secs(lease),
        attempt,
        took_over,
    };
    (plan, grant)
}

/// The change makes a token that is at least this one. Where that may be above the store's revision, it has
/// to outlive the record: the next grant's revision alone would not be above it.
fn raise(plan: &mut Plan, seen: &Seen, token: Token) {
    plan.token = Some(token);
    let by_revision = u64::try_from(seen.revision).unwrap_or(0);
    if token.get() > by_revision {
        plan.write(Write::Put(Sibling::Floor, token.get(), On::Nothing));
    } else if seen.floor.is_some() {
        plan.write(Write::Delete(Sibling::Floor));
    }
}

/// Writes the record again: from now on its token is in it.
fn rewrite(seen: &Seen, change: impl FnOnce(&mut Record)) -> Option<Plan> {
    let kept = seen.record.as_ref()?;
    let mut record = kept.record.clone();
    record.by_revision = false;
    change(&mut record);
    let keep = On::Old(kept.lease);
    let mut plan = Plan::default();
    plan.write(Write::Record(Box::new(record), keep));
    Some(plan)
}

/// A hold ends: its liveness goes, and its cooling where the end was clean.
fn end(plan: &mut Plan, seen: &Seen, record: &Record, clean: bool) {
    if seen.live.is_some() {
        plan.write(Write::Delete(Sibling::Live));
    }
    if clean && seen.cool.is_some() {
        plan.write(Write::Delete(Sibling::Cool));
    }
    plan.revoke([record.leases.live, record.leases.keep]);
    if clean {
        plan.revoke([record.leases.cool]);
    }
}

const NO_LEASES: Leases = Leases {
    live: On::Nothing,
    cool: On::Nothing,
    keep: On::Nothing,
};

/// Keeps what became of the work for a while; forgets it at once where the while is none.
fn keep(plan: &mut Plan, mut record: Record, phase: Phase, span: Duration, now: u64) {
    let span = secs(span);
    if span == 0 {
        plan.write(Write::Forget);
        return;
    }
    let on = plan.grant(span);
    record.phase = phase;
    record.since = now;
    record.until = now.saturating_add(span * 1000);
    record.leases = Leases {
        keep: on,
        ..NO_LEASES
    };
    plan.write(Write::Record(Box::new(record), on));
}

/// An operator's reply may be lost: so long a repeat hears that the token has risen, at least.
const TOLD: Duration = Duration::from_secs(60);

/// Frees the key, and remembers for a while who did: until the hold would have ended, at least.
fn freed(plan: &mut Plan, record: Record, now: u64) {
    let span = TOLD.max(Duration::from_secs(record.lease_secs));
    keep(plan, record, Phase::Freed, span, now);
}

/// A keep below this is begun anew by each beat, as the lease is.
const SHORT_KEEP_SECS: u64 = 3600;

/// One beat: **new leases, not old ones kept alive.** A leader that stood still for longer than a lease
/// takes it for ended when it wakes up, whatever its successor has kept alive, and has it revoked
/// (etcd-io/etcd #15247); it also answers keep-alives that nobody else hears of. A lease that it does not
/// know it cannot end, and one is granted by a majority only.
///
/// The plan's leases are shared by all beats of a batch: they belong to no record, and end by themselves. A
/// keep that is longer than any leader stands still is kept alive instead ([`keep_of_its_own`]).
pub(crate) fn renew(seen: &Seen, beat: &Beat, now: u64) -> Result<Plan, LostReason> {
    let record = seen.loss(beat.owner)?;
    let own_keep = keep_of_its_own(record);
    let mut record = record.clone();
    let mut plan = Plan::default();
    let live = plan.grant(record.lease_secs);
    plan.write(Write::Put(Sibling::Live, now, live));
    let cooling = secs(record.terms.cooling);
    if cooling > 0 {
        let span = record.lease_secs.saturating_add(cooling);
        let cool = plan.grant(span);
        plan.write(Write::Put(
            Sibling::Cool,
            now.saturating_add(span * 1000),
            cool,
        ));
    }
    plan.revoke([record.leases.live, record.leases.cool]);
    let on = match own_keep {
        Some(id) => On::Old(id),
        None => {
            plan.revoke([record.leases.keep]);
            plan.grant(keep_secs(&record))
        }
    };
    record.leases = Leases {
        keep: own_keep.map_or(On::Nothing, On::Old),
        ..NO_LEASES
    };
    record.by_revision = false;
    record.last_beat = now;
    record.progress = record.progress.max(beat.progress);
    plan.write(Write::Record(Box::new(record), on));
    Ok(plan)
}

/// So long the record of a hold lasts without a beat.
fn keep_secs(record: &Record) -> u64 {
    let keep = secs(record.terms.unfinished_keep);
    record.lease_secs.saturating_add(keep)
}

/// The etcd lease of a record that a beat keeps alive.
pub(crate) fn keep_of_its_own(record: &Record) -> Option<i64> {
    match record.leases.keep {
        On::Old(id) if keep_secs(record) > SHORT_KEEP_SECS => Some(id),
        _ => None,
    }
}

pub(crate) fn mark(seen: &Seen, owner: Owner) -> Step<Marked> {
    match seen.loss(owner) {
        Err(reason) => Step::Answer(Marked::Lost(reason)),
        Ok(record) if record.marked => Step::Answer(Marked::Marked),
        Ok(_) => match rewrite(seen, |record| record.marked = true) {
            Some(plan) => Step::change(plan, |_| Marked::Marked),
            None => Step::Answer(Marked::Lost(LostReason::Superseded)),
        },
    }
}

/// The token decides, not time.
pub(crate) fn finish(seen: &Seen, request: &FinishRequest, now: u64) -> Step<Finish> {
    let owner = request.owner;
    let record = match seen.of(owner.nonce) {
        Some(record) if record.token == owner.token => record,
        _ => return Step::Answer(Finish::Lost),
    };
    match record.phase {
        // The first value wins.
        Phase::Done(_) => return Step::Answer(Finish::Finished),
        Phase::Unknown | Phase::Freed => return Step::Answer(Finish::Lost),
        Phase::Held => {}
    }
    let mut plan = Plan::default();
    end(&mut plan, seen, record, true);
    let mut record = record.clone();
    record.by_revision = false;
    conclude(&mut plan, seen, record, &request.value, request.keep, now);
    Step::change(plan, |_| Finish::Finished)
}

/// The result stays at least as long as the key has to stay taken.
fn conclude(plan: &mut Plan, seen: &Seen, record: Record, value: &Value, span: Duration, now: u64) {
    let left = seen.wait.map_or(0, |until| until.saturating_sub(now));
    let taken = Duration::from_millis(left).min(record.terms.min_hold);
    let body = match value {
        Value::Kept(body) => Some(body.clone()),
        _ => None,
    };
    let span = span.max(taken);
    keep(plan, record, Phase::Done(body), span, now);
}

/// Never touches a done record; a marked one becomes unknown. `spent_secs`: how long to remember the nonce
/// of a claim that may still be under way.
pub(crate) fn release(
    seen: &Seen,
    request: &ReleaseRequest,
    spent_secs: u64,
    now: u64,
) -> Step<Release> {
    let ours = seen.of(request.nonce);
    let held = ours.filter(|record| request.token.is_none_or(|token| token == record.token));
    let mut plan = Plan::default();
    match (seen.standing(), ours, held) {
        (Standing::Held, _, Some(record)) if record.marked => {
            end(&mut plan, seen, record, true);
            let mut record = record.clone();
            record.by_revision = false;
            let span = record.terms.unfinished_keep;
            keep(&mut plan, record, Phase::Unknown, span, now);
            Step::change(plan, |_| Release::Released)
        }
        (Standing::Held | Standing::Lapsed, _, Some(record)) => {
            end(&mut plan, seen, record, true);
            plan.write(Write::Forget);
            Step::change(plan, |_| Release::Released)
        }
        (Standing::Done | Standing::Unknown, Some(_), _) => Step::Answer(Release::Lost),
        _ if seen.spent => Step::Answer(Release::Already),
        _ => {
            let spent = plan.grant(spent_secs);
            plan.write(Write::Spend(spent));
            Step::change(plan, |_| Release::Already)
        }
    }
}

pub(crate) fn resolve(
    seen: &Seen,
    expected: Token,
    resolution: &Resolution,
    now: u64,
) -> Result<Step<Resolved>, StoreError> {
    let Some(Kept { record, .. }) = &seen.record else {
        return Ok(Step::Answer(Resolved::Absent));
    };
    if seen.standing() != Standing::Unknown || record.token != expected {
        let token = record.token;
        return Ok(Step::Answer(Resolved::Conflict { token }));
    }
    let token = seen.next_token(Token::ZERO)?;
    let mut plan = Plan::default();
    end(&mut plan, seen, record, false);
    let mut record = record.clone();
    (record.token, record.by_revision) = (token, true);
    match resolution {
        Resolution::Done(value, span) => conclude(&mut plan, seen, record, value, *span, now),
        _ => freed(&mut plan, record, now),
    }
    raise(&mut plan, seen, token);
    Ok(Step::change(plan, |token| Resolved::Resolved { token }))
}

pub(crate) fn ask_revoke(seen: &Seen, expected: Token) -> Step<bool> {
    if seen.standing() != Standing::Held || seen.token() != expected {
        return Step::Answer(false);
    }
    match rewrite(seen, |record| record.revoke_asked = true) {
        Some(plan) => Step::change(plan, |_| true),
        None => Step::Answer(false),
    }
}

/// The owner may be at work still: the key cools from now on, as after a crash.
pub(crate) fn break_claim(
    seen: &Seen,
    expected: Token,
    now: u64,
) -> Result<Step<Broken>, StoreError> {
    let Some(Kept { record, .. }) = &seen.record else {
        return Ok(Step::Answer(Broken::Absent));
    };
    let standing = seen.standing();
    let held = matches!(standing, Standing::Held | Standing::Lapsed);
    if !held || record.token != expected {
        let token = record.token;
        return Ok(Step::Answer(Broken::Conflict { token }));
    }
    let token = seen.next_token(Token::ZERO)?;
    let mut plan = Plan::default();
    let mut broken = record.clone();
    (broken.token, broken.by_revision) = (token, true);
    if seen.live.is_some() {
        plan.write(Write::Delete(Sibling::Live));
        if !record.terms.cooling.is_zero() {
            let span = secs(record.terms.cooling);
            let cool = plan.grant(span);
            plan.write(Write::Put(Sibling::Cool, now + span * 1000, cool));
            plan.revoke([record.leases.cool]);
        }
    }
    plan.revoke([record.leases.live, record.leases.keep]);
    if record.holds_on() {
        let span = record.terms.unfinished_keep;
        keep(&mut plan, broken, Phase::Unknown, span, now);
    } else {
        freed(&mut plan, broken, now);
    }
    raise(&mut plan, seen, token);
    Ok(Step::change(plan, |token| Broken::Broken { token }))
}
