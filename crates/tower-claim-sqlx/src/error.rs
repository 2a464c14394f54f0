//! Why a transaction must not be committed.

use std::fmt;

use sqlx::postgres::{PgDatabaseError, PgSeverity};
use tower_claim::store::LostReason;
use tower_claim::{Key, StoreError, Token};
use tower_claim_postgres::statement::failure;

/// Why a transaction must not be committed: roll it back. Dropping it does.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another owner has the key, or an operator decided: this result was not kept.
    Lost,
    /// The owner does not hold its key any more.
    NotHeld(LostReason),
    /// The guard has admitted a higher token.
    Stale {
        /// The highest one admitted: claim again above it.
        high: Token,
    },
    /// The guard has admitted this token under another nonce.
    Collision {
        /// That token.
        high: Token,
    },
    /// The server refused the call, or did not answer. After most refusals a transaction is of no use any
    /// more; one that [is retryable](Self::is_retryable) may be run again from its beginning.
    Store(StoreError),
}

impl Error {
    /// Whether the same transaction, run again from its beginning, may succeed: its record was locked, another
    /// transaction came first (as REPEATABLE READ and SERIALIZABLE tell), or the connection broke.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Store(error) if error.is_retryable())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Lost => f.write_str("another owner has the claim: roll back"),
            Error::NotHeld(LostReason::Lapsed) => f.write_str("the claim has lapsed: roll back"),
            Error::NotHeld(LostReason::Broken) => {
                f.write_str("an operator broke the claim: roll back")
            }
            Error::NotHeld(_) => f.write_str("another owner has the claim: roll back"),
            Error::Stale { high } => {
                write!(
                    f,
                    "the fencing token is stale, {high} was admitted: roll back"
                )
            }
            Error::Collision { high } => write!(
                f,
                "the fencing token {high} was admitted under another nonce: roll back"
            ),
            Error::Store(_) => f.write_str("the claim's record was not reached: roll back"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Error::Store(error)
    }
}

/// sqlx's error by meaning. What is not known to have been refused is in doubt: outside of a transaction the
/// call may have been applied.
pub(crate) fn store_error(key: Option<&Key>, error: sqlx::Error) -> StoreError {
    if let sqlx::Error::Database(database) = &error
        && let Some(refusal) = database.try_downcast_ref::<PgDatabaseError>()
    {
        let ended = matches!(refusal.severity(), PgSeverity::Fatal | PgSeverity::Panic);
        let code = refusal.code().to_owned();
        return failure(&code, ended, key, error.into());
    }
    match error {
        // Before anything was sent.
        sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => StoreError::unavailable(error),
        sqlx::Error::RowNotFound
        | sqlx::Error::TypeNotFound { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_) => StoreError::Garbled {
            key_prefix: key.map(Key::prefix).unwrap_or_default(),
            source: error.into(),
        },
        _ => StoreError::ambiguous(error),
    }
}
