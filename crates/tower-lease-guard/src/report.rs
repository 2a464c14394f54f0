//! What happened, told to the stage board (feature `stage`) and to `tracing` (feature `tracing`). Without
//! these features nothing of it is left.

use http::Extensions;
use tower_claim::Refusal;

/// The request's row on the stage board.
#[derive(Clone)]
pub(crate) struct Board {
    #[cfg(feature = "stage")]
    stage: tower_stage::StageHandle,
}

#[cfg_attr(
    not(feature = "stage"),
    allow(unused_variables, clippy::unused_self, reason = "nobody to tell")
)]
impl Board {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        Self {
            #[cfg(feature = "stage")]
            stage: tower_stage::StageHandle::of(extensions),
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

/// The layer only observes.
#[cfg_attr(
    not(feature = "tracing"),
    allow(unused_variables, reason = "nobody to tell")
)]
pub(crate) fn would_refuse(layer: &'static str, refusal: &Refusal) {
    #[cfg(feature = "tracing")]
    tracing::info!(
        layer,
        code = refusal.code().name(),
        reason = refusal.reason(),
        "would be refused"
    );
}
