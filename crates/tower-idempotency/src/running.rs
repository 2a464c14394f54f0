//! The runs under way, and since when: the age of the oldest tells of a handler that hangs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tower_claim::{Clock, Moment};

use crate::telemetry::Meter;

/// The runs of one layer value.
pub(crate) struct Running {
    clock: Arc<dyn Clock>,
    meter: Meter,
    runs: Mutex<Runs>,
}

/// In the order of their numbers, which is the order they began in.
#[derive(Default)]
struct Runs {
    next: u64,
    since: BTreeMap<u64, Moment>,
}

impl Running {
    pub(crate) fn new(clock: Arc<dyn Clock>, meter: Meter) -> Self {
        Self {
            clock,
            meter,
            runs: Mutex::default(),
        }
    }

    pub(crate) fn begin(self: &Arc<Self>) -> RunSeat {
        let mut runs = self.lock();
        let number = runs.next;
        runs.next += 1;
        // Read under the lock: the order of the numbers is that of the times.
        runs.since.insert(number, self.clock.now());
        self.tell(&runs, runs.since.len() == 1);
        RunSeat {
            running: Arc::clone(self),
            number,
        }
    }

    /// How long the oldest has been going.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        let (_, since) = self.lock().since.first_key_value().map(|(n, s)| (*n, *s))?;
        Some(self.clock.now().saturating_since(since))
    }

    /// Told under the lock, so that what is told last is true.
    fn tell(&self, runs: &Runs, oldest_changed: bool) {
        self.meter.in_flight(runs.since.len());
        if oldest_changed {
            let began = runs.since.values().next().map(|since| {
                let age = self.clock.now().saturating_since(*since);
                self.clock.unix_time().saturating_sub(age)
            });
            self.meter.oldest_began(began);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One run. It is over when this is dropped.
pub(crate) struct RunSeat {
    running: Arc<Running>,
    number: u64,
}

impl Drop for RunSeat {
    fn drop(&mut self) {
        let mut runs = self.running.lock();
        let first = runs.since.keys().next().copied();
        runs.since.remove(&self.number);
        self.running.tell(&runs, first == Some(self.number));
    }
}

#[cfg(test)]
mod tests {
    use tower_claim::testing::ManualClock;

    use super::*;

    #[test]
    fn the_oldest_run_is_the_one_that_began_first_of_those_that_are_left() {
        let clock = Arc::new(ManualClock::new());
        let meter = Meter::of(&Arc::from("test"));
        let running = Arc::new(Running::new(clock.clone(), meter));
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(running.oldest(), None);
        let first = running.begin();
        clock.advance(Duration::from_secs(5));
        let second = running.begin();
        clock.advance(Duration::from_secs(2));
        let third = running.begin();
        assert_eq!(running.oldest(), secs(7));
        drop(second);
        assert_eq!(running.oldest(), secs(7));
        drop(first);
        assert_eq!(running.oldest(), secs(0));
        drop(third);
        assert_eq!(running.oldest(), None);
    }
}
