//! Why a handler gets no transaction, or a layer does not get it back.

use std::fmt;

use crate::{Code, Refusal, StoreError};

/// Why a slot does not lend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLent {
    /// This run has a transaction.
    Second,
    /// This run is over.
    Over,
    /// The layer has laid out a transaction of another crate or driver than the handler asks for.
    OfAnotherEngine,
    /// The layer's records are in a store of another engine: no transaction of the handler's carries them.
    OfAnotherStore {
        /// The layer's.
        store: &'static str,
        /// The handler's.
        engine: &'static str,
    },
}

impl fmt::Display for NotLent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OfAnotherStore { store, engine } => {
                return write!(
                    f,
                    "the layer's store is `{store}`, and this transaction is of `{engine}`: give the layer the store of \
                     the same database"
                );
            }
            Self::Second => "this run has a transaction already: hand on the one it has",
            Self::OfAnotherEngine => {
                "the layer began a transaction of another driver: give it the transactions that the handler takes"
            }
            Self::Over => "this run is over: take the transaction before the handler answers",
        })
    }
}

impl std::error::Error for NotLent {}

/// A handler has answered, and something it left behind has its transaction yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StillLent;

impl fmt::Display for StillLent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the handler answered and kept its transaction: drop it, or end what has it, before",
        )
    }
}

impl std::error::Error for StillLent {}

/// Why a handler got no transaction.
#[derive(Debug)]
#[non_exhaustive]
pub enum BeginError {
    /// No layer runs this request under a key: the request has none, or the application is wired wrongly.
    NoRun,
    /// The run has a transaction already, or is over.
    NotLent(NotLent),
    /// The database did not begin one.
    Store(StoreError),
}

impl BeginError {
    /// What the caller is told: `key-missing`, or `store-unavailable`, after which a repeat runs. A handler
    /// that asks twice is a mistake of the program, and told as if it had panicked.
    pub fn to_refusal(&self) -> Refusal {
        let code = match self {
            Self::NoRun => Code::KeyMissing,
            Self::NotLent(_) => Code::HandlerPanicked,
            Self::Store(_) => Code::StoreUnavailable,
        };
        Refusal::new(code).with_detail(self.to_string())
    }
}

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRun => f.write_str(
                "this handler runs with a business key only; if the request has one, put IdempotencyLayer around \
                 the handler's route",
            ),
            Self::NotLent(why) => why.fmt(f),
            Self::Store(_) => f.write_str("the database began no transaction"),
        }
    }
}

impl std::error::Error for BeginError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::NoRun | Self::NotLent(_) => None,
        }
    }
}

impl From<NotLent> for BeginError {
    fn from(why: NotLent) -> Self {
        Self::NotLent(why)
    }
}
