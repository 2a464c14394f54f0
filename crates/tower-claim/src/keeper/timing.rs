//! The arithmetic of leases: when to beat, when to stop, when to give up. No clock, no store.

use std::time::Duration;

use crate::Moment;

/// The spans one hold lives by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) lease: Duration,
    /// How long one store call may take.
    pub(crate) attempt: Duration,
    /// How long before the lapse the owner stops.
    pub(crate) stop_budget: Duration,
}

/// What two clocks may drift apart within `span`: 1 %, at least 2 ms (timer and scheduling grain), but
/// never more than a twentieth, so that short leases are of use.
pub(super) fn drift(span: Duration) -> Duration {
    (span / 100).max((span / 20).min(Duration::from_millis(2)))
}

impl Timing {
    /// The instant from which the owner may not believe any more that it holds.
    ///
    /// Counted from *before* the call was sent: the engine applied it later than that, never sooner
    /// (etcd's client counts from the reply, and believes too long by one trip).
    pub(super) fn stop_at(&self, sent: Moment, rest: Duration) -> Moment {
        sent + rest
            .saturating_sub(drift(rest))
            .saturating_sub(self.stop_budget)
    }

    /// Whether a hold with this stop point is worth handing out: at least half a lease of it is left.
    pub(super) fn worth_having(&self, now: Moment, stop_at: Moment) -> bool {
        let whole = self.stop_at(now, self.lease).saturating_since(now);
        stop_at.saturating_since(now) >= whole / 2
    }

    /// A third of the lease ± 15 %.
    pub(super) fn interval(&self, jitter: &mut Jitter) -> Duration {
        jitter.around(self.lease / 3)
    }

    /// How soon a failed beat is tried again.
    pub(super) fn retry(&self, jitter: &mut Jitter) -> Duration {
        jitter.around(self.attempt / 4)
    }

    /// The latest first beat, its timeout, and one more attempt all end before the stop point.
    pub(super) fn leaves_room_for_two_beats(&self) -> bool {
        let latest_beat = (self.lease / 3).mul_f64(1.0 + SPREAD);
        latest_beat + self.attempt * 2 + self.stop_budget + drift(self.lease) < self.lease
    }

    /// Until when a finish is repeated: half its keep (after the keep the key may be another's), and one
    /// lease.
    pub(super) fn finish_until(&self, sent: Moment, keep: Duration) -> Moment {
        sent + (keep / 2).min(self.lease)
    }
}

const SPREAD: f64 = 0.15;

/// Spreads beats, so that holds granted together do not stay together. Seeded by the nonce, which is
/// random already: a beat costs no system call.
#[derive(Debug, Clone)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `span` ± 15 %.
    fn around(&mut self, span: Duration) -> Duration {
        // SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let fraction = ((z ^ (z >> 31)) >> 40) as f64 / (1u64 << 24) as f64;
        span.mul_f64(1.0 - SPREAD + 2.0 * SPREAD * fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn timing(lease: Duration) -> Timing {
        Timing {
            lease,
            attempt: lease / 6,
            stop_budget: lease / 20,
        }
    }

    fn at(ms: u32) -> Moment {
        Moment::since_start(ms * MS)
    }

    #[test]
    fn the_stop_point_counts_from_before_the_send() {
        let t = timing(1000 * MS);
        assert_eq!(t.stop_at(at(500), 1000 * MS), at(500 + 1000 - 10 - 50));
        assert_eq!(t.stop_at(at(500), Duration::ZERO), at(500));
    }

    #[test]
    fn drift_is_one_percent_and_leaves_short_leases_alive() {
        assert_eq!(drift(10_000 * MS), 100 * MS);
        assert_eq!(drift(100 * MS), 2 * MS);
        assert_eq!(drift(10 * MS), MS / 2);
    }

    #[test]
    fn beats_spread_around_a_third() {
        let t = timing(3000 * MS);
        let mut jitter = Jitter::new(7);
        let beats: Vec<_> = (0..1000).map(|_| t.interval(&mut jitter)).collect();
        assert!(beats.iter().all(|b| (850 * MS..=1150 * MS).contains(b)));
        let spread = *beats.iter().max().unwrap() - *beats.iter().min().unwrap();
        assert!(spread > 250 * MS, "{spread:?}");
    }

    #[test]
    fn half_a_lease_is_worth_having() {
        let t = timing(1000 * MS);
        assert!(t.worth_having(at(0), at(940)));
        assert!(t.worth_having(at(470), at(940)));
        assert!(!t.worth_having(at(471), at(940)));
        assert!(!t.worth_having(at(2000), at(940)));
    }

    #[test]
    fn a_finish_is_repeated_for_half_its_keep_and_one_lease() {
        let t = timing(1000 * MS);
        assert_eq!(t.finish_until(at(0), Duration::ZERO), at(0));
        assert_eq!(t.finish_until(at(0), 600 * MS), at(300));
        assert_eq!(t.finish_until(at(0), 60_000 * MS), at(1000));
    }
}
