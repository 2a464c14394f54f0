//! Why a claim is not granted, and who is taken over where it is.

use std::time::Duration;

use tower_claim::store::{Busy, Claimed, Cooling, TookOver, Unknown};
use tower_claim::{Fingerprint, Nonce};

use super::view::{ago, rest};
use super::{Phase, Seen, Standing};

impl Seen {
    /// How long nobody is granted the key, were it free; zero when it may be.
    pub(crate) fn cooling(&self, now: u64) -> Duration {
        const LONG: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        let cool = self.cool.map(|told| match self.last() {
            Some(record) if record.phase == Phase::Held => {
                let cooling = u64::try_from(record.terms.cooling.as_millis()).unwrap_or(u64::MAX);
                record.lapse().saturating_add(cooling)
            }
            _ => told,
        });
        // A liveness key without its hold: the record ended a moment before it. It goes by itself.
        let stray = (self.live.is_some() && self.standing() != Standing::Held).then_some(now);
        let ends = [cool, self.wait, stray].into_iter().flatten().max();
        ends.map_or(Duration::ZERO, |until| rest(until, now, LONG))
    }

    /// Why a claim is not granted; `None` when it may be.
    pub(crate) fn refusal(
        &self,
        nonce: Nonce,
        fingerprint: Option<Fingerprint>,
        now: u64,
    ) -> Option<Claimed> {
        let standing = self.standing();
        if let Some(record) = self.of(nonce) {
            // Grants nothing: a full lease counted from a repeated call would make two believers.
            return Some(match record.phase {
                Phase::Held => Claimed::Mine {
                    token: record.token,
                    // At most: how much of it, etcd is asked.
                    rest: self
                        .live
                        .map_or(Duration::ZERO, |_| Duration::from_secs(record.lease_secs)),
                    attempt: record.attempt,
                },
                _ => Claimed::Ended,
            });
        }
        if self.spent {
            return Some(Claimed::Ended);
        }
        let cooling = self.cooling(now);
        let cools = |same_fingerprint| {
            Claimed::Cooling(Cooling {
                remaining: cooling,
                same_fingerprint,
            })
        };
        let Some(record) = self.last() else {
            return (!cooling.is_zero()).then(|| cools(true));
        };
        let same_fingerprint = record.fingerprint == fingerprint;
        let busy = || {
            Claimed::Busy(Busy {
                token: record.token,
                since: ago(record.since, now),
                expires_in: self.lease_left(record, now),
                same_fingerprint,
                label: record.terms.label.clone(),
            })
        };
        match standing {
            Standing::Held => Some(busy()),
            Standing::Done => self.done(same_fingerprint, now).map(Claimed::Done),
            Standing::Unknown => Some(Claimed::Unknown(Unknown {
                token: record.token,
                same_fingerprint,
            })),
            Standing::Lapsed if !cooling.is_zero() => Some(cools(same_fingerprint)),
            Standing::Lapsed if !same_fingerprint => Some(busy()),
            Standing::Free if !cooling.is_zero() => Some(cools(true)),
            Standing::Lapsed | Standing::Free => None,
        }
    }

    /// Who is taken over, and its attempt.
    pub(crate) fn took_over(&self, now: u64) -> (Option<TookOver>, u32) {
        match self.last() {
            Some(record) if self.standing() == Standing::Lapsed => {
                let took_over = TookOver {
                    token: record.token,
                    since: ago(record.since, now),
                    last_beat: ago(record.last_beat, now),
                    progress: record.progress,
                };
                (Some(took_over), record.attempt)
            }
            _ => (None, 0),
        }
    }
}
