//! The steps of one law, and whether it kept them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Time;
use super::law::{Judged, Stop};
use crate::{Clock, Moment, SystemClock};

/// What is done at step `n` begins `n` units after the start, and is over before one unit less the tolerance
/// has passed. So a lease of 2 units granted at step 0 stands at step 1 and has lapsed at step 3, for sure.
#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) time: Time,
    pub(super) unit: Duration,
    tolerance: Duration,
    start: Moment,
    step: AtomicU32,
}

/// Later than all steps of a law.
const WAITING: u32 = 1 << 20;

impl Schedule {
    /// Begins now.
    pub(super) fn new(time: Time) -> Self {
        let (unit, tolerance, start) = match &time {
            Time::Manual(clock) => (Duration::from_secs(1), Duration::ZERO, clock.now()),
            Time::Real { unit, tolerance } => (*unit, *tolerance, SystemClock.now()),
        };
        Self {
            time,
            unit,
            tolerance,
            start,
            step: AtomicU32::new(0),
        }
    }

    pub(super) fn on_time(&self) -> bool {
        let Time::Real { .. } = self.time else {
            return true;
        };
        let begin = self.start + self.unit * self.step.load(Ordering::Relaxed);
        SystemClock.now() < begin + self.unit.saturating_sub(self.tolerance)
    }

    /// Goes on to a step. What was done at the one before must be over in time.
    pub(super) async fn at(&self, step: u32) -> Judged {
        self.end_step()?;
        let when = self.start + self.unit * step;
        self.step.store(step, Ordering::Relaxed);
        match &self.time {
            Time::Manual(clock) => {
                // Who was woken has a turn, before and after the time moves.
                have_a_turn().await;
                clock.advance(when.saturating_since(clock.now()));
                have_a_turn().await;
            }
            Time::Real { .. } => SystemClock.sleep_until(when).await,
        }
        Ok(())
    }

    /// The steps are over. What follows is waiting, which is bound to none.
    pub(super) fn only_wait(&self) -> Judged {
        self.end_step()?;
        self.step.store(WAITING, Ordering::Relaxed);
        Ok(())
    }

    fn end_step(&self) -> Judged {
        match self.on_time() {
            true => Ok(()),
            false => Err(Stop::Stalled),
        }
    }

    /// Whether a span of time is so many units: exactly by hand, within one step on real time.
    pub(super) fn about(&self, seen: Duration, units: u32) -> bool {
        let off = seen.abs_diff(self.unit * units);
        match self.time {
            Time::Manual(_) => off.is_zero(),
            Time::Real { .. } => off <= self.unit + self.tolerance,
        }
    }
}

async fn have_a_turn() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}
