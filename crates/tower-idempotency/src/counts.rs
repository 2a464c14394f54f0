//! What the layer did, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::telemetry::{Meter, RunName};

macro_rules! counts {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// How often the layer did what, since it was built. Read it with
        /// [`IdempotencyLayer::counts`](crate::IdempotencyLayer::counts). With the features `metrics` and `tracing`
        /// each is told under its name here, as it happens.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        #[derive(Debug)]
        pub(crate) struct Counters {
            /// Who tells, for what is more than a number.
            pub(crate) meter: Meter,
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn told_to(meter: &Meter) -> Self {
                Self {
                    meter: meter.clone(),
                    $($name: Counter::new(stringify!($name), meter),)*
                }
            }

            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.count.load(Ordering::Relaxed),)* }
            }
        }
    };
}

#[derive(Debug)]
pub(crate) struct Counter {
    count: AtomicU64,
    name: &'static str,
    meter: Meter,
}

impl Counter {
    fn new(name: &'static str, meter: &Meter) -> Self {
        Self {
            count: AtomicU64::new(0),
            name,
            meter: meter.clone(),
        }
    }

    pub(crate) fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.meter.outcome(self.name, None);
    }

    /// By this run.
    pub(crate) fn add_of(&self, run: RunName) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.meter.outcome(self.name, Some(run));
    }
}

counts! {
    /// Handlers that were started, takeovers included.
    runs,
    /// Of those, the ones behind a run that lapsed: they took over from it, or a hook or an operator let them run.
    takeovers,
    /// Answers from the record.
    replays,
    /// Refusals because the first run is still going.
    in_progress,
    /// Refusals because the key was used for another payload.
    key_reused,
    /// Refusals because the outcome of the first run is unknown.
    outcome_unknown,
    /// Refusals because the work is done and its response was not kept.
    not_kept,
    /// Refusals because the store did not answer, was full, or held an unreadable record.
    store_failures,
    /// Handlers that ran without a claim, because the store did not answer
    /// ([`OnStoreDown::RunUnprotected`](crate::OnStoreDown::RunUnprotected)).
    unprotected,
    /// Refusals because the tenant has as many records, or bytes, as it may have.
    over_quota,
    /// Other refusals: keys, scopes, bodies, limits, shutdown.
    other_refusals,
    /// Keys that are not likely to name an intent ([`OnWeakKey`](crate::OnWeakKey)), refused or not.
    weak_keys,
    /// Layers that were found on the wrong side of this one ([`Misorder`](crate::Misorder)), each kind once.
    misorders,
    /// Repeats of work whose response was not kept that were answered in other words
    /// ([`on_not_kept`](crate::IdempotencyBuilder::on_not_kept)).
    rendered,
    /// Lapsed runs whose answer a [reconcile hook](crate::IdempotencyBuilder::reconcile) knew.
    reconciled,
    /// Runs that met a row that was there already, and were answered for it
    /// ([`on_unique_violation`](crate::IdempotencyBuilder::on_unique_violation)).
    existing,
    /// Outcomes kept with their response.
    kept,
    /// Outcomes kept without their response.
    tombstones,
    /// Keys given back without an outcome.
    released,
    /// Runs whose outcome was not accepted, because another run had taken over.
    superseded,
    /// Outcomes that the store did not confirm. The response was sent all the same, the keeper goes on
    /// trying.
    unconfirmed,
    /// Handlers that panicked.
    panics,
    /// In observe-only mode: requests that would have been guarded.
    observed,
    /// In observe-only mode: requests that would have been refused for their key or scope.
    observed_refusals,
}
