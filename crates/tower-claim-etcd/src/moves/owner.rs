//! What an owner does with its claim, beats apart.

use std::time::Duration;

use tower_claim::store::{
    Finish, FinishRequest, LostReason, Marked, Owner, Release, ReleaseRequest,
};

use super::{Step, conclude, end, keep, rewrite};
use crate::plan::{Plan, Write};
use crate::record::{Phase, Seen, Standing};

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
    let left = seen.wait.map_or(0, |until| until.saturating_sub(now));
    let taken = Duration::from_millis(left).min(record.terms.min_hold);
    let (value, span) = (&request.value, request.keep);
    conclude(&mut plan, record, value, span, taken, now);
    Step::change(plan, |_| Finish::Finished)
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
