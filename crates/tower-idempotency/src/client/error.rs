//! Why a call failed.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Why a call through [`IdempotencyKey`](crate::IdempotencyKey) failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The inner service's own error.
    Inner(E),
    /// The request was not sent: its key is so old that the server may have forgotten it, and would run the
    /// work again. Find out what became of the first attempt; then, if need be, begin another call.
    KeyExpired {
        /// How old the key is.
        age: Duration,
    },
}

impl<E> CallError<E> {
    /// Whether another attempt of the same call may help: never once the key is too old.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Inner(_))
    }

    /// The inner service's own error.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Inner(error) => Some(error),
            Self::KeyExpired { .. } => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(error) => error.fmt(f),
            Self::KeyExpired { age } => write!(
                f,
                "not sent: the idempotency key is {} s old, and the server may have forgotten it; \
                 find out what became of the first attempt",
                age.as_secs()
            ),
        }
    }
}

impl<E: StdError> StdError for CallError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            // It is shown as itself, so its own cause comes next.
            Self::Inner(error) => error.source(),
            Self::KeyExpired { .. } => None,
        }
    }
}
