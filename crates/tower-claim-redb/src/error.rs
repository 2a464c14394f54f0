//! Why a file is not opened, and what a failed transaction means for its calls.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use redb::{DatabaseError, StorageError};
use tower_claim::{ConfigError, StoreError};

/// Why a file was not opened. The text says the mend.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open, or another store in this one.
    InUse,
    /// It is a folder, a device or a pipe.
    NotAFile,
    /// It is no redb file.
    NotRedb,
    /// It is a redb file of something else.
    Foreign,
    /// A later version of this crate wrote it.
    FutureFormat(u32),
    /// A version of redb wrote it that this one does not read.
    OtherRedb(u8),
    /// It cannot be read or written: missing folder, permissions, disk, damage.
    Storage(Box<dyn std::error::Error + Send + Sync>),
    /// A setting is out of its range.
    Config(ConfigError),
    /// At this path.
    At {
        /// The path given.
        path: PathBuf,
        /// What happened there. Never another [`At`](Self::At).
        error: Box<OpenError>,
    },
}

impl OpenError {
    pub(crate) fn storage(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Storage(error.into())
    }

    /// What happened, wherever it was.
    pub fn kind(&self) -> &OpenError {
        match self {
            Self::At { error, .. } => error,
            here => here,
        }
    }
}

impl From<DatabaseError> for OpenError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => Self::InUse,
            DatabaseError::UpgradeRequired(version) => Self::OtherRedb(version),
            DatabaseError::Storage(StorageError::Io(error))
                if error.kind() == io::ErrorKind::InvalidData =>
            {
                Self::NotRedb
            }
            DatabaseError::Storage(StorageError::Io(error)) => Self::storage(Advised(error)),
            other => Self::storage(other),
        }
    }
}

impl From<ConfigError> for OpenError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str(
                "the file is in use: one process owns it, through one store that is cloned",
            ),
            Self::NotAFile => f.write_str("not a regular file: choose another path"),
            Self::NotRedb => f.write_str("not a redb file: choose another path"),
            Self::Foreign => {
                f.write_str("a redb file, but not one of claims: choose a path of its own")
            }
            Self::FutureFormat(format) => write!(
                f,
                "a file of format {format}, written by a later version: update tower-claim-redb"
            ),
            Self::OtherRedb(version) => write!(
                f,
                "a redb file of version {version}: upgrade it with the redb that wrote it"
            ),
            Self::Storage(error) => write!(f, "the file cannot be used: {error}"),
            Self::Config(error) => error.fmt(f),
            Self::At { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.kind() {
            Self::Storage(error) => Some(error.as_ref()),
            Self::Config(error) => Some(error),
            _ => None,
        }
    }
}

/// An error of the file system, with its mend.
#[derive(Debug)]
struct Advised(io::Error);

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mend = match self.0.kind() {
            io::ErrorKind::NotFound => ": make the folder first",
            io::ErrorKind::PermissionDenied => ": this process needs to read and write it",
            io::ErrorKind::ReadOnlyFilesystem => ": choose a path that can be written",
            io::ErrorKind::StorageFull => ": make room on its disk",
            _ => "",
        };
        write!(f, "{}{mend}", self.0)
    }
}

impl std::error::Error for Advised {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Why a call got no answer of its own.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// This call alone: its record is garbled, or it asks for what cannot be. It changed nothing.
    Call(StoreError),
    /// The whole transaction.
    Storage(redb::Error),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Call(error)
    }
}

/// From each error of redb.
macro_rules! of_redb {
    ($($error:ty),+) => {
        $(impl From<$error> for Trouble {
            fn from(error: $error) -> Self {
                Self::Storage(error.into())
            }
        })+
    };
}

of_redb!(
    redb::Error,
    StorageError,
    redb::TableError,
    redb::TransactionError
);

/// What a failed transaction means for every call in it.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// None of them was applied.
    NotApplied(Cause),
    /// All of them were applied, or none.
    InDoubt(Cause),
}

impl Failure {
    pub(crate) fn not_applied(cause: impl fmt::Display) -> Self {
        Self::NotApplied(Cause::new(cause))
    }

    pub(crate) fn in_doubt(cause: impl fmt::Display) -> Self {
        Self::InDoubt(Cause::new(cause))
    }

    pub(crate) fn to_error(&self) -> StoreError {
        match self {
            Self::NotApplied(cause) => StoreError::unavailable(cause.clone()),
            Self::InDoubt(cause) => StoreError::ambiguous(cause.clone()),
        }
    }
}

/// Told to many.
#[derive(Debug, Clone)]
pub(crate) struct Cause(Arc<str>);

impl Cause {
    fn new(cause: impl fmt::Display) -> Self {
        Self(cause.to_string().into())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cause {}
