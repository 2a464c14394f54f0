//! A heartbeat.

use tower_claim::store::{Beat, LostReason};

use super::NO_LEASES;
use crate::plan::{On, Plan, Sibling, Write, secs};
use crate::record::{Leases, Record, Seen};

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
