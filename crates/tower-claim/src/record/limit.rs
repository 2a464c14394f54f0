//! A `not_after` as a record keeps it.

use crate::store::StoreTime;

/// Until when a copy of a claim may arrive, rounded up to a second: remembering a nonce for a moment
/// longer than needed is harmless, and four bytes less keep a record within its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Limit(u32);

const SECOND: u64 = 1_000_000;

impl Limit {
    pub(super) fn of(not_after: StoreTime) -> Self {
        let seconds = not_after.as_micros().div_ceil(SECOND);
        Self(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// [`StoreTime::NEVER`] where it was, and 136 years after the engine's start.
    pub(super) fn time(self) -> StoreTime {
        match self.0 {
            u32::MAX => StoreTime::NEVER,
            seconds => StoreTime::from_micros(u64::from(seconds) * SECOND),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_sooner() {
        let at = StoreTime::from_micros;
        assert_eq!(Limit::of(at(1)).time(), at(SECOND));
        assert_eq!(Limit::of(at(SECOND)).time(), at(SECOND));
        assert_eq!(Limit::of(at(0)).time(), at(0));
        let far = at(u64::from(u32::MAX) * SECOND - 1);
        assert_eq!(Limit::of(far).time(), StoreTime::NEVER);
        assert_eq!(Limit::of(StoreTime::NEVER).time(), StoreTime::NEVER);
    }
}
