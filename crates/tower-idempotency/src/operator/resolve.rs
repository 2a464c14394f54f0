//! What is to become of an unknown outcome.

use bytes::Bytes;
use http::Response;
use tower_claim::StoreError;
use tower_claim::store::{Resolution, Resolved, Value};

use super::{Operator, UnknownOutcome};
use crate::made::MadeAnswer;
use crate::record::Marker;

/// What an operator says of an unknown outcome.
pub(super) enum Word {
    /// The work was done, with this answer.
    Done(Value),
    /// Nothing happened.
    RunAgain,
}

/// Each answers [`Resolved::Conflict`] where the outcome is not the one that was seen any more: somebody else has
/// resolved it, a late run finished, or the reconcile hook that it waits for is being asked, or has said something.
/// A resolve that fails without a clear answer may be done all the same: look again.
///
/// Look at your books right before. Of a hook that was asked after you looked, and let a run begin that failed, a store
/// remembers for seconds only.
impl Operator {
    /// The work was done, and this is its answer: it is kept for the layer's retention, under the layer's rules for
    /// headers, redacted and sealed like any other, and replayed. Behind a marker, of an outcome that
    /// [waits for its hook](UnknownOutcome::waits_for_hook), no longer than that: until it is
    /// [forgotten](UnknownOutcome::forgotten_in). Of one over
    /// [`max_response_body`](crate::IdempotencyBuilder::max_response_body) the head is kept, and repeats are told that
    /// the work is done.
    ///
    /// Of a gRPC call: its message as it is sent (five bytes before it), or nothing, content type `application/grpc`, and
    /// `grpc-status` in the head; behind a message it is replayed as a trailer.
    ///
    /// # Errors
    ///
    /// The store's.
    ///
    /// # Cancellation
    ///
    /// Dropped, it is done or it is not.
    pub async fn resolve_with(
        &self,
        outcome: &UnknownOutcome,
        response: Response<Bytes>,
    ) -> Result<Resolved, StoreError> {
        let made = MadeAnswer::of(response, false);
        let now = self.shared.clock().unix_time();
        let began = outcome.since.max(outcome.last_beat);
        let record = self.shared.record_of(&made, now.saturating_sub(began));
        let at = if outcome.waits_for_hook {
            outcome.asked_at()
        } else {
            outcome.key
        };
        let (value, _) = self.shared.seal_up(at, record);
        self.resolve(outcome, Word::Done(value)).await
    }

    /// The work was done, and its answer is not known: repeats are told so (409 `response-not-kept`), as long as
    /// [an answer](Self::resolve_with) would be kept.
    ///
    /// # Errors
    ///
    /// The store's.
    ///
    /// # Cancellation
    ///
    /// Dropped, it is done or it is not.
    pub async fn resolve_done(&self, outcome: &UnknownOutcome) -> Result<Resolved, StoreError> {
        self.resolve(outcome, Word::Done(Value::Tombstone)).await
    }

    /// Nothing happened: the next repeat runs, and no hook is asked before. (Where a hook was asked, or is to be, nothing
    /// runs any more in the last time before the doubt is forgotten:
    /// [see there](crate::IdempotencyBuilder::reconcile).)
    ///
    /// # Errors
    ///
    /// The store's.
    ///
    /// # Cancellation
    ///
    /// Dropped, it is done or it is not.
    pub async fn run_again(&self, outcome: &UnknownOutcome) -> Result<Resolved, StoreError> {
        self.resolve(outcome, Word::RunAgain).await
    }

    async fn resolve(&self, outcome: &UnknownOutcome, word: Word) -> Result<Resolved, StoreError> {
        if outcome.waits_for_hook {
            return self.resolve_instead(outcome, word).await;
        }
        let resolution = match word {
            Word::Done(value) => Resolution::Done(value, self.shared.retention),
            // Free, it would ask the hook that could not tell.
            Word::RunAgain if outcome.hook_asked => {
                let marker = Value::Kept(Marker::Run.to_bytes());
                Resolution::Done(marker, self.shared.marker_keep())
            }
            Word::RunAgain => Resolution::Absent,
        };
        self.store
            .dyn_resolve(outcome.key, outcome.token, resolution)
            .await
    }
}
