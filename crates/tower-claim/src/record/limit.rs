//! A `not_after` as a record keeps it.

use crate::store::StoreTime;

/// Until when a copy of a claim may arrive, rounded up to 1/16 s: remembering a nonce for a moment longer
/// than needed is harmless, and four bytes less keep a record within its budget. Not coarser: of a key
/// claimed over and over the spent nonces fold, and a newcomer's `not_after` must soon be past the fold
/// (with whole seconds such a key was refused for most of each second).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Limit(u32);

const STEP: u64 = 1_000_000 / 16;

impl Limit {
    pub(super) fn of(not_after: StoreTime) -> Self {
        let steps = not_after.as_micros().div_ceil(STEP);
        Self(u32::try_from(steps).unwrap_or(u32::MAX))
    }

    /// [`StoreTime::NEVER`] where it was, and 8 years after the engine's start.
    pub(super) fn time(self) -> StoreTime {
        match self.0 {
            u32::MAX => StoreTime::NEVER,
            steps => StoreTime::from_micros(u64::from(steps) * STEP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_sooner() {
        let at = StoreTime::from_micros;
        assert_eq!(Limit::of(at(1)).time(), at(STEP));
        assert_eq!(Limit::of(at(STEP)).time(), at(STEP));
        assert_eq!(Limit::of(at(0)).time(), at(0));
        let far = at(u64::from(u32::MAX) * STEP - 1);
        assert_eq!(Limit::of(far).time(), StoreTime::NEVER);
        assert_eq!(Limit::of(StoreTime::NEVER).time(), StoreTime::NEVER);
    }
}
