//! How long a request was in which stage.

use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::Stage;

/// Stages kept in place. Few requests enter more; theirs are kept in a box.
const FEW: usize = 8;

/// Time spent in each stage that was entered. Of a finished request they sum up to the total, to the
/// nanosecond.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StageTimes {
    /// A bit for every stage that was entered; its time has the rank of the bit.
    touched: u32,
    few: [u64; FEW],
    more: Option<Box<[u64]>>,
}

impl StageTimes {
    /// Puts these in the place of those that were here.
    pub(crate) fn set(&mut self, touched: u32, nanos_of: impl Fn(usize) -> u64) {
        self.touched = touched;
        self.few = [0; FEW];
        for (place, index) in self.few.iter_mut().zip(bits(touched)) {
            *place = nanos_of(index);
        }
        self.more = (touched.count_ones() as usize > FEW)
            .then(|| bits(touched).skip(FEW).map(nanos_of).collect());
    }

    /// Every stage that was entered, core stages first, and the time in it.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, Duration)> + '_ {
        let nanos = self.few.iter().chain(self.more.iter().flatten());
        bits(self.touched)
            .zip(nanos)
            .map(|(index, nanos)| (Stage::of_index(index), Duration::from_nanos(*nanos)))
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

/// The places of the bits that are set, lowest first.
pub(crate) fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (index < u32::BITS).then_some(index as usize)
    })
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
