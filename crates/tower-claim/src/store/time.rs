//! An engine's own time.

use std::time::Duration;

/// An instant by an engine's own clock, in microseconds since a start the engine chose. Instants of two
/// engines do not compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreTime(u64);

impl StoreTime {
    /// After every instant: a call that is never too late.
    pub const NEVER: StoreTime = StoreTime(u64::MAX);

    /// An instant by the engine's clock.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the engine's start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Not past [`StoreTime::NEVER`].
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    /// How long after `earlier` this is; zero when it is not.
    #[must_use]
    pub const fn saturating_since(self, earlier: StoreTime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}
