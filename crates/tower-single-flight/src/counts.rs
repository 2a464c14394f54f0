//! What was merged, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// How often what happened, since the layer was built. Read it with
        /// [`SingleFlightLayer::counts`](crate::SingleFlightLayer::counts) and its like.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.add_many(1);
    }

    pub(crate) fn add_many(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

counts! {
    /// Calls that were begun where others could join them, or could have but for a shutdown.
    leaders,
    /// Callers that joined a running call instead of making one.
    followers,
    /// Followers that waited as long as they may. Some of them then led.
    waited_out,
    /// Followers of a call that grew too old.
    aged,
    /// Callers that were refused because too many waited, or made their own calls, already.
    overloaded,
    /// Requests that passed through: not to be merged, known to be unshareable, or the layer is off.
    bypassed,
    /// On HTTP: joined calls whose answer could not be shared.
    unshareable,
    /// On HTTP: followers that then made their own call.
    alone,
    /// In observe mode: requests that would have led or joined.
    observed,
    /// Of those, the ones that would have joined.
    observed_followers,
    /// Of those, the ones whose leader's answer could not have been shared, by its status and headers.
    observed_unshareable,
}
