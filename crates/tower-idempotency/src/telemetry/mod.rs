//! What is told to `metrics` and `tracing`, with the features of these names; without them nothing.

mod events;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod metered;

use std::sync::Arc;
use std::time::Duration;

use tower_claim::DynClaimStore;

pub(crate) use events::RunName;

/// Tells what one layer value does, under its name.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    layer: Arc<str>,
}

#[allow(
    clippy::unused_self,
    reason = "what each feature tells is its own affair"
)]
impl Meter {
    pub(crate) fn of(_layer: &Arc<str>) -> Self {
        Self {
            #[cfg(any(feature = "metrics", feature = "tracing"))]
            layer: Arc::clone(_layer),
        }
    }

    /// Something of this name happened: one of [`Counts`](crate::Counts).
    pub(crate) fn count(&self, _outcome: &'static str) {
        #[cfg(feature = "metrics")]
        metrics::counter!(
            "idempotency_outcomes_total",
            "layer" => Arc::clone(&self.layer),
            "outcome" => _outcome
        )
        .increment(1);
    }

    pub(crate) fn in_flight(&self, _runs: usize) {
        #[cfg(feature = "metrics")]
        metrics::gauge!("idempotency_runs_in_flight", "layer" => Arc::clone(&self.layer))
            .set(u32::try_from(_runs).unwrap_or(u32::MAX));
    }

    /// When the oldest run began, since the Unix epoch. The instant, not the age: it stays true while nothing
    /// happens, which is when somebody looks at it.
    pub(crate) fn oldest_began(&self, _at: Option<Duration>) {
        #[cfg(feature = "metrics")]
        metrics::gauge!("idempotency_oldest_run_start_seconds", "layer" => Arc::clone(&self.layer))
            .set(_at.unwrap_or_default().as_secs_f64());
    }

    /// A call of the store's, or of a transaction that has its claim in it, took so long.
    pub(crate) fn store_call(&self, _call: &'static str, _took: Duration, _is_ok: bool) {
        #[cfg(feature = "metrics")]
        metrics::histogram!(
            "idempotency_store_seconds",
            "layer" => Arc::clone(&self.layer),
            "call" => _call,
            "ok" => if _is_ok { "true" } else { "false" }
        )
        .record(_took.as_secs_f64());
        #[cfg(feature = "tracing")]
        tracing::trace!(
            target: "tower_idempotency::store",
            layer = &*self.layer,
            call = _call,
            micros = u64::try_from(_took.as_micros()).unwrap_or(u64::MAX),
            ok = _is_ok,
            "the store was called",
        );
    }

    /// The store, with its calls told of.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    pub(crate) fn watch_over(
        &self,
        store: Arc<dyn DynClaimStore>,
        clock: Arc<dyn tower_claim::Clock>,
    ) -> Arc<dyn DynClaimStore> {
        Arc::new(metered::Metered {
            store,
            clock,
            meter: self.clone(),
        })
    }

    /// The store itself.
    #[cfg(not(any(feature = "metrics", feature = "tracing")))]
    pub(crate) fn watch_over(
        &self,
        store: Arc<dyn DynClaimStore>,
        _: Arc<dyn tower_claim::Clock>,
    ) -> Arc<dyn DynClaimStore> {
        store
    }
}
