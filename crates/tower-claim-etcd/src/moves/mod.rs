//! The moves: what each call writes, given what was read.

mod beat;
mod claim;
mod operator;
mod owner;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tower_claim::Token;
use tower_claim::store::Value;

pub(crate) use beat::{keep_of_its_own, renew};
pub(crate) use claim::{Ask, claim, grant};
pub(crate) use operator::{ask_revoke, break_claim, purge, resolve};
pub(crate) use owner::{finish, mark, release};

use crate::plan::{On, Plan, Sibling, Write, secs};
use crate::record::{Leases, Phase, Record, Seen};

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

/// The result stays at least as long as the key has to stay `taken`.
fn conclude(
    plan: &mut Plan,
    record: Record,
    value: &Value,
    span: Duration,
    taken: Duration,
    now: u64,
) {
    let body = match value {
        Value::Kept(body) => Some(body.clone()),
        _ => None,
    };
    keep(plan, record, Phase::Done(body), span.max(taken), now);
}
