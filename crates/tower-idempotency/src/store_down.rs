//! What a request is to do without the store.

use tower_claim::StoreError;

use crate::shared::Shared;

/// What a request with a key does when the store does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnStoreDown {
    /// Refuses (503 `store-unavailable`): nothing runs. The default.
    #[default]
    Refuse,
    /// Runs without a claim, as if the layer were not there. **A repeat runs again**, also of work that was done
    /// while the store was up. See [`on_store_down`](crate::IdempotencyBuilder::on_store_down).
    RunUnprotected,
}

impl Shared {
    /// Whether a request may run though its claim failed in this way. A store that answers that it is full, or that
    /// a record cannot be read, is up: the record may be of this very work.
    pub(crate) fn runs_unprotected(&self, error: &StoreError) -> bool {
        self.on_store_down == OnStoreDown::RunUnprotected
            && matches!(error, StoreError::Unavailable(_) | StoreError::Ambiguous(_))
    }
}
