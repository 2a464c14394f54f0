//! What a record was made into last. What it is worth now, time decides.

use bytes::Bytes;

use super::Limit;
use crate::Fingerprint;
use crate::store::StoreTime;

/// What binds only in some phases lies in them: so a record is no larger than it must be. `not_after` is
/// until when a copy of the last nonce's claim may still arrive.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    /// Never seen.
    Vacant,
    Free {
        not_after: Limit,
    },
    /// Also after the lapse: what the lapse means is judged when somebody looks.
    Held {
        not_after: Limit,
        fingerprint: Option<Fingerprint>,
        last_beat: StoreTime,
        progress: u64,
        attempt: u32,
        marked: bool,
        revoke_asked: bool,
    },
    Done {
        not_after: Limit,
        fingerprint: Option<Fingerprint>,
        /// The key was to stay taken when the work ended. Then the terms are this record's own, and their
        /// `min_hold` counts from that end: an instant beside them would make every record larger.
        stays_taken: bool,
        /// `None` is a tombstone.
        body: Option<Bytes>,
    },
    /// Unknown by a marked release or a break. Unlike the unknown that a lapse makes (which is still
    /// [`Phase::Held`]), the owner cannot finish it any more.
    Unknown {
        not_after: Limit,
        fingerprint: Option<Fingerprint>,
        not_before: StoreTime,
        last_beat: StoreTime,
        progress: u64,
        marked: bool,
    },
}

impl Phase {
    pub(super) fn not_after(&self) -> Limit {
        match self {
            Phase::Vacant => Limit::default(),
            Phase::Free { not_after }
            | Phase::Held { not_after, .. }
            | Phase::Done { not_after, .. }
            | Phase::Unknown { not_after, .. } => *not_after,
        }
    }

    pub(super) fn not_after_mut(&mut self) -> Option<&mut Limit> {
        match self {
            Phase::Vacant => None,
            Phase::Free { not_after }
            | Phase::Held { not_after, .. }
            | Phase::Done { not_after, .. }
            | Phase::Unknown { not_after, .. } => Some(not_after),
        }
    }

    /// The fingerprint that binds.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        match self {
            Phase::Vacant | Phase::Free { .. } => None,
            Phase::Held { fingerprint, .. }
            | Phase::Done { fingerprint, .. }
            | Phase::Unknown { fingerprint, .. } => *fingerprint,
        }
    }
}
