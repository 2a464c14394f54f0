//! A run whose claim is to be settled.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::OwnedSemaphorePermit;
use tower_claim::Key;
use tower_claim::store::{Finish, Value};

use crate::reply::{Reply, Responder};
use crate::run::IdempotentRun;
use crate::shared::Shared;
use crate::stage::Row;

/// A run whose claim is to be settled: finished with an outcome, or released without one. Dropped
/// unsettled (its task was killed), the keeper is told to release.
pub(crate) struct OpenRun {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: Key,
    pub(crate) run: IdempotentRun,
    pub(crate) responder: Responder,
    pub(crate) row: Row,
    pub(crate) _permit: OwnedSemaphorePermit,
}

/// What became of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The answer stands: its outcome is kept, or it was none; or the store did not say, and the keeper
    /// goes on trying.
    Stands,
    /// Another run had taken over.
    Superseded,
}

impl OpenRun {
    /// Keeps the outcome. Its response may go out when this has answered.
    pub(crate) async fn finish(&self, value: Value) -> Settled {
        let counters = &self.shared.counters;
        let Some(claim) = self.run.end() else {
            return Settled::Stands;
        };
        let kept = match value {
            Value::Kept(_) => &counters.kept,
            _ => &counters.tombstones,
        };
        match claim.finish(value, self.shared.retention).await {
            Ok(Finish::Finished) => kept.add(),
            Ok(_) => {
                counters.superseded.add();
                return Settled::Superseded;
            }
            Err(_error) => {
                // The work is done: its caller gets its answer, whatever the store is doing.
                counters.unconfirmed.add();
                #[cfg(feature = "tracing")]
                tracing::warn!(
                    key = self.key.prefix(),
                    error = &_error as &dyn std::error::Error,
                    "the store did not confirm an outcome; the keeper goes on trying",
                );
            }
        }
        Settled::Stands
    }

    /// Gives the key back. After the point of no return its outcome becomes unknown.
    pub(crate) async fn release(&self) -> Settled {
        if let Some(claim) = self.run.end() {
            self.shared.counters.released.add();
            let _ = claim.release().await;
        }
        Settled::Stands
    }

    /// The handler panicked, or its body did.
    pub(crate) async fn panicked(&self) -> Settled {
        self.shared.counters.panics.add();
        self.row.panicked();
        self.release().await
    }

    /// What the caller of a superseded run is told.
    pub(crate) async fn answer_after_loss(&self) -> Reply {
        self.shared.answer_after_loss(self.key).await
    }

    pub(crate) fn is_grpc(&self, headers: &HeaderMap) -> bool {
        self.responder.is_grpc() || tower_claim::http::is_grpc(headers)
    }
}
