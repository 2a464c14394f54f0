//! sqlx's errors by meaning.

use sqlx::postgres::{PgDatabaseError, PgSeverity};
use tower_claim::{Key, StoreError};
use tower_claim_postgres::statement::failure;

/// What is not known to have been refused is in doubt: outside of a transaction the
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
