//! Why a guard does not let a write happen.

use std::fmt;

use tower_claim::store::Admission;
use tower_claim::{Code, Refusal, StoreError, Token};

/// Why a guard does not let a write happen.
#[derive(Debug)]
#[non_exhaustive]
pub enum FenceError {
    /// A newer token was admitted before: this lease is over, and another owner has written.
    Stale {
        /// The high-water mark.
        high: Token,
    },
    /// This very token was admitted with another nonce: a store gave one token twice.
    Collision {
        /// The high-water mark.
        high: Token,
    },
    /// The guard's store did not answer. Do not write.
    Store(StoreError),
}

impl FenceError {
    pub(crate) fn judge(answer: Result<Admission, StoreError>) -> Result<(), Self> {
        match answer {
            Ok(Admission::Admitted) => Ok(()),
            Ok(Admission::Stale { high }) => Err(Self::Stale { high }),
            Ok(Admission::Collision { high }) => Err(Self::Collision { high }),
            // A verdict this version does not know is not a yes.
            Ok(_) => Err(Self::Store(StoreError::Unsupported(
                "an answer of a newer version",
            ))),
            Err(error) => Err(Self::Store(error)),
        }
    }

    /// Whether the same write may be admitted when it is tried again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }

    /// The refusal: 412 `token-stale` (reason `stale` or `collision`), 503 `store-unavailable`.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Stale { high } => Refusal::new(Code::TokenStale)
                .with_reason("stale")
                .with_detail(format!("token {high} was admitted already")),
            Self::Collision { high } => Refusal::new(Code::TokenStale)
                .with_reason("collision")
                .with_detail(format!("token {high} was admitted for another owner")),
            Self::Store(_) => Refusal::new(Code::StoreUnavailable)
                .with_detail("the fencing token could not be checked, nothing was written"),
        }
    }
}

impl From<&FenceError> for Refusal {
    fn from(error: &FenceError) -> Self {
        error.refusal()
    }
}

impl From<FenceError> for Refusal {
    fn from(error: FenceError) -> Self {
        error.refusal()
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { high } => write!(f, "the token is stale: {high} was admitted already"),
            Self::Collision { high } => {
                write!(f, "token {high} was admitted for another owner")
            }
            Self::Store(_) => f.write_str("the guard's store did not answer"),
        }
    }
}

impl std::error::Error for FenceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}
