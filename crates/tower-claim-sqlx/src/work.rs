//! What a handler's statement failed by.

use std::error::Error as StdError;
use std::fmt;

use sqlx::postgres::PgDatabaseError;
use tower_claim::transaction::Conflict;
use tower_claim_postgres::statement::conflict;

/// A statement of a handler's that failed: `?` makes one. With axum (feature `axum`) it is a response.
///
/// It lets the layer around help. Where a [unique index](tower_claim::transaction::UniqueViolation) refused the row,
/// and the layer knows what to answer for that index (`on_unique_violation`), that is the answer; where
/// another transaction came first, it is 409 and a repeat runs. Everything else is a bare 500. The database's own
/// words are for your logs: [`source`](StdError::source).
///
/// ```
/// use tower_claim_sqlx::{RunTransaction, WorkError};
///
/// async fn order(mut tx: RunTransaction, item: String) -> Result<&'static str, WorkError> {
///     let insert = sqlx::query("insert into orders (item) values ($1)").bind(item);
///     insert.execute(&mut *tx).await?; // a refusal of the database becomes the right answer
///     Ok("ordered")
/// }
/// ```
///
/// A handler with an error type of its own puts the [violation](Self::conflict) into its response's extensions.
#[derive(Debug)]
pub struct WorkError(sqlx::Error);

impl WorkError {
    /// What it means for the request.
    pub fn conflict(&self) -> Conflict {
        let database = self.0.as_database_error();
        let refusal = database.and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
        refusal.map_or(Conflict::Other, |db| {
            conflict(db.code(), db.constraint(), db.table(), db.detail())
        })
    }
}

impl From<sqlx::Error> for WorkError {
    fn from(error: sqlx::Error) -> Self {
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
