//! What happened, told to the stage board (feature `stage`) and to `tracing` (feature `tracing`). Without
//! these features nothing of it is left.
#![cfg_attr(
    not(all(feature = "stage", feature = "tracing")),
    allow(unused_variables, clippy::unused_self, reason = "nobody to tell")
)]

use http::Extensions;
use tower_claim::{Loss, Refusal, StoreError};

use crate::lease::Lease;

/// The request's row on the stage board.
#[derive(Clone)]
pub(crate) struct Board {
    #[cfg(feature = "stage")]
    stage: tower_stage::StageHandle,
}

impl Board {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        Self {
            #[cfg(feature = "stage")]
            stage: tower_stage::StageHandle::of(extensions),
        }
    }

    /// The request waits for the holder of a lease.
    pub(crate) fn wait_for(&self, holder: &str) -> Waiting {
        Waiting {
            #[cfg(feature = "stage")]
            _waiting: self
                .stage
                .wait_on(tower_stage::WaitReason::Lease, holder.to_owned()),
        }
    }

    /// The layer answers instead of the inner service.
    pub(crate) fn refused(&self, layer: &'static str, refusal: &Refusal) {
        #[cfg(feature = "stage")]
        self.stage.rejected();
        #[cfg(feature = "tracing")]
        tracing::debug!(
            layer,
            code = refusal.code().name(),
            reason = refusal.reason(),
            "refused"
        );
    }
}

/// The request waits for a lease, until this is dropped.
pub(crate) struct Waiting {
    #[cfg(feature = "stage")]
    _waiting: tower_stage::Waiting,
}

/// The layer only observes.
pub(crate) fn would_refuse(layer: &'static str, refusal: &Refusal) {
    #[cfg(feature = "tracing")]
    tracing::info!(
        layer,
        code = refusal.code().name(),
        reason = refusal.reason(),
        "would be refused"
    );
}

/// A lease begins.
pub(crate) fn granted(lease: &Lease) {
    #[cfg(feature = "tracing")]
    if let Some(before) = lease.took_over() {
        tracing::info!(
            token = lease.token().get(),
            before = before.token.get(),
            progress = before.progress,
            "took over a lapsed lease"
        );
    }
}

/// A lease was lost; its work has been dropped.
pub(crate) fn lost(lease: &Lease, loss: Loss) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        token = lease.token().get(),
        reason = loss.as_str(),
        "lease lost, work cancelled"
    );
}

/// The store did not answer a release; the keeper goes on with it.
pub(crate) fn release_failed(error: &StoreError) {
    #[cfg(feature = "tracing")]
    tracing::warn!(%error, "a release was not answered");
}
