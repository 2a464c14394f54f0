//! An engine's time, as well as it is known here.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::store::StoreTime;
use crate::{Clock, Moment, SystemClock};

/// What time it is by an engine's clock, from the replies that carried it.
///
/// A reply tells the engine's time at some instant between send and receipt, so the offset of the two clocks
/// lies in a span. Kept is the upper end of the narrowest span seen: [`now`](Self::now) is never behind the
/// engine by more than drift, and ahead of it by a trip at most. (Behind, a `not_after` would make live
/// calls too late; ahead, a nonce is remembered a trip longer.) A reply whose span the kept offset lies outside
/// of tells that a clock was moved: the offset begins anew.
#[derive(Debug)]
pub struct EngineClock {
    clock: Arc<dyn Clock>,
    /// Engine time minus ours, in microseconds.
    offset: AtomicI64,
}

impl EngineClock {
    /// Knows nothing until a first reply is told: then [`now`](Self::now) is this machine's time since
    /// boot.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            offset: AtomicI64::new(0),
        }
    }

    /// The instant a call is sent: for [`observe`](Self::observe).
    pub fn sending(&self) -> Moment {
        self.clock.now()
    }

    /// A reply to a call sent at `sent` said what time it is.
    pub fn observe(&self, sent: Moment, time: StoreTime) {
        let received = self.clock.now();
        let (latest, earliest) = (offset(time, sent), offset(time, received));
        let keep = |kept: i64| (earliest..=latest).contains(&kept).then_some(kept);
        let update = |kept| Some(keep(kept).unwrap_or(latest));
        let _ = self
            .offset
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// The engine's time now.
    pub fn now(&self) -> StoreTime {
        let ours = micros(self.clock.now());
        let theirs = ours.saturating_add(self.offset.load(Ordering::Relaxed));
        StoreTime::from_micros(u64::try_from(theirs).unwrap_or(0))
    }
}

impl Default for EngineClock {
    /// By [`SystemClock`].
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

fn offset(time: StoreTime, ours: Moment) -> i64 {
    i64::try_from(time.as_micros())
        .unwrap_or(i64::MAX)
        .saturating_sub(micros(ours))
}

fn micros(moment: Moment) -> i64 {
    i64::try_from(moment.elapsed().as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::ManualClock;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> StoreTime {
        StoreTime::from_micros(ms * 1000)
    }

    #[test]
    fn it_is_never_behind_and_ahead_by_the_quickest_trip_at_most() {
        let ours = ManualClock::new();
        let clock = EngineClock::new(Arc::new(ours.clone()));
        // The engine's time is 10,000 ms when ours is at its start.
        for (there, back) in [(50, 50), (1, 3), (30, 0), (0, 30)] {
            let engine = clock.now();
            let sent = clock.sending();
            ours.advance(MS * there);
            let told =
                at(10_000).saturating_add(ours.now().saturating_since(ManualClock::new().now()));
            ours.advance(MS * back);
            clock.observe(sent, told);
            let true_now = told.saturating_add(MS * back);
            assert!(
                clock.now() >= true_now,
                "behind: {:?} of {engine:?}",
                clock.now()
            );
            assert!(clock.now() <= true_now.saturating_add(MS * 50));
        }
        let told = at(10_000).saturating_add(ours.now().saturating_since(ManualClock::new().now()));
        assert!(
            clock.now() <= told.saturating_add(MS),
            "the quick trip counts"
        );
    }

    #[test]
    fn an_engine_whose_clock_was_moved_is_followed() {
        let ours = ManualClock::new();
        let clock = EngineClock::new(Arc::new(ours));
        for told in [3_600_000, 7_200_000, 1_000] {
            clock.observe(clock.sending(), at(told));
            assert_eq!(clock.now(), at(told));
        }
    }
}
