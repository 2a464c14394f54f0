//! A `not_after` as a record keeps it.

use crate::store::StoreTime;

/// Until when a copy of a claim may arrive, rounded up to 256 µs: remembering a nonce for a moment longer
/// than needed is harmless, and three bytes less keep a record within its budget.
///
/// Not coarser: of a key claimed over and over the spent nonces fold, and the next claim's `not_after` must
/// be past the fold. With whole seconds such a key was closed for most of each second; with sixteenths for
/// most of each sixteenth, where thousands of claims come and go within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Limit([u8; 5]);

/// In microseconds.
const STEP: u64 = 256;
const LAST: u64 = (1 << 40) - 1;

impl Limit {
    pub(super) fn of(not_after: StoreTime) -> Self {
        let steps = not_after.as_micros().div_ceil(STEP).min(LAST);
        // The highest byte first: so limits compare as their bytes do.
        let [_, _, _, a, b, c, d, e] = steps.to_be_bytes();
        Self([a, b, c, d, e])
    }

    /// [`StoreTime::NEVER`] where it was, and from the ninth year after the engine's start.
    pub(super) fn time(self) -> StoreTime {
        let [a, b, c, d, e] = self.0;
        match u64::from_be_bytes([0, 0, 0, a, b, c, d, e]) {
            LAST => StoreTime::NEVER,
            steps => StoreTime::from_micros(steps * STEP),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AT: fn(u64) -> StoreTime = StoreTime::from_micros;

    #[test]
    fn what_is_too_far_is_never() {
        let last = AT((LAST - 1) * STEP);
        assert_eq!(Limit::of(last).time(), last);
        for far in [AT(last.as_micros() + 1), StoreTime::NEVER] {
            assert_eq!(Limit::of(far).time(), StoreTime::NEVER);
        }
        assert_eq!(Limit::of(AT(0)).time(), AT(0));
        assert_eq!(Limit::default().time(), AT(0));
    }

    proptest! {
        #[test]
        fn a_limit_is_never_sooner_hardly_later_and_keeps_the_order(a in 0..LAST * STEP, b in 0..LAST * STEP) {
            let (limit, other) = (Limit::of(AT(a)), Limit::of(AT(b)));
            let after = limit.time().as_micros().checked_sub(a);
            prop_assert!(limit.time() == StoreTime::NEVER || after.is_some_and(|after| after < STEP));
            prop_assert_eq!(limit.cmp(&other), limit.time().cmp(&other.time()));
        }
    }
}
