//! Records at rest: sealed with a key that the store does not know.

use std::fmt;

/// The first byte of a sealed record.
pub(crate) const SEALED: u8 = 0xE1;

/// Why a record cannot be unsealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SealError {
    /// It is sealed, and this layer has no keys.
    NoKeys,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys => f.write_str(
                "the record is sealed, and this layer has no keys: give it the key ring it was sealed with",
            ),
        }
    }
}
