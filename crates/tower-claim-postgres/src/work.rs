//! What a handler's statement failed by.

use std::error::Error as StdError;
use std::fmt;

use tower_claim::transaction::Conflict;

use crate::statement::conflict;

/// A statement of a handler's that failed: `?` makes one. With axum (feature `axum`) it is a response.
///
/// It lets the layer around help. Where a [unique index](tower_claim::transaction::UniqueViolation) refused the row,
/// and the layer knows what to answer for that index (`on_unique_violation`), that is the answer; where
/// another transaction came first, it is 409 and a repeat runs. Everything else is a bare 500. The database's own
/// words are for your logs: [`source`](StdError::source).
///
/// ```
/// use tower_claim_postgres::{RunTransaction, WorkError};
///
/// async fn order(tx: RunTransaction, item: String) -> Result<&'static str, WorkError> {
///     tx.execute("insert into orders (item) values ($1)", &[&item]).await?; // a refusal becomes the right answer
///     Ok("ordered")
/// }
/// ```
///
/// A handler with an error type of its own puts the [violation](Self::conflict) into its response's extensions.
#[derive(Debug)]
pub struct WorkError(tokio_postgres::Error);

impl WorkError {
    /// What it means for the request.
    pub fn conflict(&self) -> Conflict {
        self.0.as_db_error().map_or(Conflict::Other, |db| {
            conflict(db.code().code(), db.constraint(), db.table(), db.detail())
        })
    }
}

impl From<tokio_postgres::Error> for WorkError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self(error)
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a statement of the handler failed")
    }
}

impl StdError for WorkError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}
