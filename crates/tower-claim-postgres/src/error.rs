//! Errors by meaning.

use std::error::Error as StdError;
use std::fmt;

use tower_claim::{ConfigError, Key, StoreError};

use crate::Names;
use crate::statement::failure;

/// Why a store could not be opened. Its text is one line that says the mend.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting.
    Config(ConfigError),
    /// The server cannot be reached, or refused.
    Store(StoreError),
    /// What answers is no PostgreSQL of version 13 or newer, takes no writes, or has settings under which claims
    /// would fail.
    Server(String),
    /// The tables are not there, or older than this version.
    NotMigrated(Names),
    /// The tables are of a newer version of this crate.
    NewerFormat {
        /// Theirs.
        found: i64,
        /// The newest that this version knows.
        known: i64,
    },
    /// There are tables of these names, and they are not ours.
    Foreign(Names),
    /// The role lacks rights.
    NoRights {
        /// What to run.
        grants: String,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Store(error) => {
                let mut said = String::new();
                let mut part: Option<&dyn StdError> = error.source();
                if part.is_none() {
                    said = error.to_string();
                }
                while let Some(error) = part {
                    // Some say their cause as well: once is enough.
                    let text = error.to_string();
                    if !said.contains(&text) {
                        let colon = if said.is_empty() { "" } else { ": " };
                        said = format!("{said}{colon}{text}");
                    }
                    part = error.source();
                }
                write!(f, "PostgreSQL: {said}")
            }
            Self::Server(what) => f.write_str(what),
            Self::NotMigrated(names) => write!(
                f,
                "the tables beside {} are missing, or older than this version: run `migrate()`, or the SQL file of \
                 tower-claim-postgres",
                names.of("meta")
            ),
            Self::NewerFormat { found, known } => write!(
                f,
                "the tables are of format {found}, this version knows {known}: update tower-claim-postgres"
            ),
            Self::Foreign(names) => write!(
                f,
                "{} is no table of tower-claim-postgres: choose another schema or table prefix",
                names.of("meta")
            ),
            Self::NoRights { grants } => write!(
                f,
                "the role lacks rights; run as the owner: {}",
                grants.trim_end().replace('\n', " ")
            ),
        }
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ConfigError> for ConnectError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<StoreError> for ConnectError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What became of a statement that was sent. Wherever the server has not said that it undid it, the caller
/// is in doubt.
pub(crate) fn of_statement(error: tokio_postgres::Error, key: Option<&Key>) -> StoreError {
    let Some(db) = error.as_db_error() else {
        return StoreError::ambiguous(error);
    };
    let state = db.code().code().to_owned();
    failure(&state, ended_session(&error), key, error.into())
}

/// The error of a guard's call names the resource whose mark cannot be read.
pub(crate) fn of_mark(resource: &str) -> impl Fn(StoreError) -> StoreError {
    move |error| match error {
        StoreError::Garbled { source, .. } => StoreError::Garbled {
            key_prefix: resource.chars().take(8).collect(),
            source,
        },
        error => error,
    }
}

/// Whether the server ended the session with this error.
pub(crate) fn ended_session(error: &tokio_postgres::Error) -> bool {
    use tokio_postgres::error::Severity;

    let Some(db) = error.as_db_error() else {
        return true;
    };
    match db.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        // Servers before 9.6 speak the operator's language here.
        None => db.severity() != "ERROR",
    }
}
