//! What an operator does with a claim.

use std::time::Duration;

use tower_claim::store::{Broken, Purged, Resolution, Resolved};
use tower_claim::{StoreError, Token};

use super::{Step, conclude, end, keep, raise, rewrite};
use crate::plan::{Plan, Sibling, Write, secs};
use crate::record::{Kept, Phase, Record, Seen, Standing};

/// An operator's reply may be lost: so long a repeat hears that the token has risen, at least.
const TOLD: Duration = Duration::from_secs(60);

/// Frees the key, and remembers for a while who did: until the hold would have ended, at least.
fn freed(plan: &mut Plan, mut record: Record, now: u64) {
    // Nothing of the work binds any more.
    record.fingerprint = None;
    let span = TOLD.max(Duration::from_secs(record.lease_secs));
    keep(plan, record, Phase::Freed, span, now);
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
        Resolution::Done(value, span) => {
            // Its crashed owner may be at work still, as long as the key cools.
            let most = record.terms.min_hold.max(record.terms.cooling);
            let taken = seen.cooling(now).min(most);
            conclude(&mut plan, record, value, *span, taken, now);
        }
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
    let span = record.terms.unfinished_keep;
    // An unknown outcome that nobody keeps is a free key at once, and the owner still hears who ended its hold.
    if record.holds_on() && !span.is_zero() {
        keep(&mut plan, broken, Phase::Unknown, span, now);
    } else {
        freed(&mut plan, broken, now);
    }
    raise(&mut plan, seen, token);
    Ok(Step::change(plan, |token| Broken::Broken { token }))
}

/// Drops a result, and lets go of the key: nothing of the work is left. What still keeps the key taken lies
/// beside the record, and stays.
pub(crate) fn purge(seen: &Seen, expected: Token, now: u64) -> Result<Step<Purged>, StoreError> {
    let Some(Kept { record, .. }) = &seen.record else {
        return Ok(Step::Answer(Purged::Absent));
    };
    match seen.standing() {
        Standing::Free => return Ok(Step::Answer(Purged::Absent)),
        Standing::Done if record.token == expected => {}
        _ => {
            let token = record.token;
            return Ok(Step::Answer(Purged::Conflict { token }));
        }
    }
    let token = seen.next_token(Token::ZERO)?;
    let mut plan = Plan::default();
    end(&mut plan, seen, record, false);
    let mut record = record.clone();
    (record.token, record.by_revision) = (token, true);
    freed(&mut plan, record, now);
    raise(&mut plan, seen, token);
    Ok(Step::change(plan, |token| Purged::Purged { token }))
}
