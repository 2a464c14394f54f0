//! How long a request was in which stage.

use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::Stage;
use crate::stage::STAGES;

/// Time spent in each stage that was entered. Of a finished request they sum up to the total, to the
/// nanosecond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageTimes {
    touched: u32,
    nanos: [u64; STAGES],
}

impl StageTimes {
    pub(crate) fn new(touched: u32, nanos_of: impl Fn(usize) -> u64) -> Self {
        let mut times = Self {
            touched,
            nanos: [0; STAGES],
        };
        for index in times.touched() {
            times.nanos[index] = nanos_of(index);
        }
        times
    }

    /// The indices of the stages that were entered.
    pub(crate) fn touched(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.touched;
        std::iter::from_fn(move || {
            let index = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (index < u32::BITS).then_some(index as usize)
        })
    }

    /// Every stage that was entered, core stages first, and the time in it.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, Duration)> + '_ {
        self.touched().map(|index| {
            (
                Stage::of_index(index),
                Duration::from_nanos(self.nanos[index]),
            )
        })
    }

    /// Time in `stage`; `None` if it was never entered.
    pub fn get(&self, stage: Stage) -> Option<Duration> {
        self.iter()
            .find_map(|(entered, time)| (entered == stage).then_some(time))
    }

    /// The sum.
    pub fn total(&self) -> Duration {
        self.iter().map(|(_, time)| time).sum()
    }
}

impl Serialize for StageTimes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (stage, time) in self.iter() {
            map.serialize_entry(stage.name(), &millis(time))?;
        }
        map.end()
    }
}

/// Milliseconds as the board shows them: exact to the nanosecond where a double is.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}
