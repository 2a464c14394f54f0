//! What is to become of an unknown outcome.

use bytes::Bytes;
use http::Response;
use tower_claim::StoreError;
use tower_claim::store::{Resolution, Resolved, Value};

use super::{Operator, UnknownOutcome};
use crate::record::{Head, Marker};

impl Operator {
    /// The work was done, and this is its answer: it is kept for the layer's retention, under the layer's rules for
    /// headers, redacted and sealed like any other, and replayed. [`Resolved::Conflict`] where the outcome is not the
    /// one that was seen any more.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn resolve_with(
        &self,
        outcome: &UnknownOutcome,
        response: Response<Bytes>,
    ) -> Result<Resolved, StoreError> {
        let (parts, body) = response.into_parts();
        let rules = &self.shared.headers;
        let now = self.shared.clock().unix_time();
        let first_seen = now.saturating_sub(outcome.since);
        let head = Head::new(parts.status, &parts.headers, rules, first_seen);
        let record = head.with_body([&body].into_iter(), None, rules);
        let (value, _) = self.shared.seal_up(outcome.key, record);
        self.resolve(outcome, Resolution::Done(value, self.shared.retention))
            .await
    }

    /// The work was done, and its answer is not known: repeats are told so (409 `response-not-kept`).
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn resolve_done(&self, outcome: &UnknownOutcome) -> Result<Resolved, StoreError> {
        let done = Resolution::Done(Value::Tombstone, self.shared.retention);
        self.resolve(outcome, done).await
    }

    /// Nothing happened: the next repeat runs, and no hook is asked before.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn run_again(&self, outcome: &UnknownOutcome) -> Result<Resolved, StoreError> {
        let free = if outcome.hook_asked {
            // Free, it would ask the hook that could not tell.
            let marker = Value::Kept(Marker::Run.to_bytes());
            Resolution::Done(marker, self.shared.marker_keep())
        } else {
            Resolution::Absent
        };
        self.resolve(outcome, free).await
    }

    async fn resolve(
        &self,
        outcome: &UnknownOutcome,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        self.store
            .dyn_resolve(outcome.key, outcome.token, resolution)
            .await
    }
}
