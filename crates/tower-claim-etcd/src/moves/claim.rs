//! A grant.

use std::time::Duration;

use tower_claim::store::{ClaimRequest, Claimed, Grant};
use tower_claim::{Settings, StoreError, Token};

use super::{Step, raise};
use crate::plan::{On, Plan, Sibling, Write, secs};
use crate::record::{Kept, Leases, Phase, Record, Seen};

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
