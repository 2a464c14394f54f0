//! Why bytes are no record.

use std::fmt;

use crate::{Key, StoreError};

/// Why bytes are not read as a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnreadableRecord {
    /// Written by a later version of this crate: update this process, or let the other one write no more.
    FutureVersion(u8),
    /// The bytes end too early.
    Truncated,
    /// Damaged, or never written as a record. Says what was met.
    Foreign(&'static str),
}

impl UnreadableRecord {
    /// The error a store answers.
    pub fn of_key(self, key: &Key) -> StoreError {
        StoreError::Garbled {
            key_prefix: key.prefix(),
            source: self.into(),
        }
    }
}

impl fmt::Display for UnreadableRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FutureVersion(version) => write!(
                f,
                "a record of version {version}: written by a later version of tower-claim"
            ),
            Self::Truncated => f.write_str("a record that ends too early"),
            Self::Foreign(what) => write!(f, "not a record: {what}"),
        }
    }
}

impl std::error::Error for UnreadableRecord {}
