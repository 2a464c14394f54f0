//! Why a transaction must not be committed.

use std::fmt;

use tower_claim::store::{Admission, Finish, LostReason};
use tower_claim::{StoreError, Token};

/// Why a transaction must not be committed: roll it back. Dropping it does.
///
/// Every answer of a call inside a transaction that forbids the commit is such an error, so `?` before the
/// commit is the right use, and the short one.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransactionError {
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

impl TransactionError {
    /// Whether the same transaction, run again from its beginning, may succeed: its record was locked, another
    /// transaction came first (as REPEATABLE READ and SERIALIZABLE tell), or the connection broke.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }

    /// What the answer to a finish means for its transaction.
    ///
    /// # Errors
    ///
    /// [`Lost`](Self::Lost).
    pub fn unless_finished(answer: Finish) -> Result<(), Self> {
        match answer {
            Finish::Finished => Ok(()),
            _ => Err(Self::Lost),
        }
    }

    /// What the answer of a guard means for its transaction.
    ///
    /// # Errors
    ///
    /// [`Stale`](Self::Stale), [`Collision`](Self::Collision).
    pub fn unless_admitted(answer: Admission) -> Result<(), Self> {
        match answer {
            Admission::Admitted => Ok(()),
            Admission::Stale { high } => Err(Self::Stale { high }),
            Admission::Collision { high } => Err(Self::Collision { high }),
            _ => {
                let unknown = "a guard's answer that this version does not know";
                Err(StoreError::Unsupported(unknown).into())
            }
        }
    }

    /// What the answer to "is it held still" means for its transaction.
    ///
    /// # Errors
    ///
    /// [`NotHeld`](Self::NotHeld).
    pub fn unless_held(answer: Option<LostReason>) -> Result<(), Self> {
        match answer {
            None => Ok(()),
            Some(reason) => Err(Self::NotHeld(reason)),
        }
    }
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("another owner has the claim: roll back"),
            Self::NotHeld(LostReason::Lapsed) => f.write_str("the claim has lapsed: roll back"),
            Self::NotHeld(LostReason::Broken) => {
                f.write_str("an operator broke the claim: roll back")
            }
            Self::NotHeld(_) => f.write_str("another owner has the claim: roll back"),
            Self::Stale { high } => write!(
                f,
                "the fencing token is stale, {high} was admitted: roll back"
            ),
            Self::Collision { high } => write!(
                f,
                "the fencing token {high} was admitted under another nonce: roll back"
            ),
            Self::Store(_) => f.write_str("the claim's record was not reached: roll back"),
        }
    }
}

impl std::error::Error for TransactionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for TransactionError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
