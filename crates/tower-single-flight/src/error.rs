//! How a flight fails.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tower_claim::{Code, Refusal};

/// Why a caller has no result. `E` is the call's own error.
#[non_exhaustive]
pub enum FlightError<E> {
    /// The call failed. All who shared it get the same value; it is never kept for later callers.
    Failed(Arc<E>),
    /// The call panicked after somebody had joined. (Before, the panic is passed on to the caller.)
    Panicked,
    /// The flight is older than it may be; waiting followers learn it at that moment.
    FlightAged,
    /// This follower has waited as long as it may.
    WaitTimeout,
    /// The flight has as many followers as it may.
    Overloaded,
    /// The runtime that ran the call was shut down.
    ShuttingDown,
    /// A follower needs a tokio runtime, and this one was polled outside of any.
    NoRuntime,
}

impl<E> FlightError<E> {
    /// The refusal's name where the failure becomes a response.
    pub fn code(&self) -> Code {
        match self {
            Self::Failed(_) => Code::UpstreamFailed,
            Self::Panicked => Code::HandlerPanicked,
            Self::FlightAged => Code::FlightAged,
            Self::WaitTimeout => Code::WaitTimeout,
            Self::Overloaded => Code::Overloaded,
            Self::ShuttingDown | Self::NoRuntime => Code::ShuttingDown,
        }
    }

    /// The refusal, before it becomes a response.
    pub fn refusal(&self) -> Refusal {
        Refusal::new(self.code())
    }

    /// Whether the same call may succeed a moment later.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Panicked | Self::NoRuntime)
    }

    /// The call's own error, if it is that.
    pub fn failure(&self) -> Option<&Arc<E>> {
        match self {
            Self::Failed(error) => Some(error),
            _ => None,
        }
    }
}

// By hand: a derive would demand `E: Clone`, which the `Arc` is there to avoid.
impl<E> Clone for FlightError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(Arc::clone(error)),
            Self::Panicked => Self::Panicked,
            Self::FlightAged => Self::FlightAged,
            Self::WaitTimeout => Self::WaitTimeout,
            Self::Overloaded => Self::Overloaded,
            Self::ShuttingDown => Self::ShuttingDown,
            Self::NoRuntime => Self::NoRuntime,
        }
    }
}

impl<E> fmt::Debug for FlightError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(_) => "Failed(..)",
            Self::Panicked => "Panicked",
            Self::FlightAged => "FlightAged",
            Self::WaitTimeout => "WaitTimeout",
            Self::Overloaded => "Overloaded",
            Self::ShuttingDown => "ShuttingDown",
            Self::NoRuntime => "NoRuntime",
        })
    }
}

impl<E> fmt::Display for FlightError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(_) => "the shared call failed",
            Self::Panicked => "the shared call panicked",
            Self::FlightAged => "the shared call ran longer than a flight may",
            Self::WaitTimeout => "waited too long for the shared call",
            Self::Overloaded => "too many wait for the shared call",
            Self::ShuttingDown => "the runtime of the shared call was shut down",
            Self::NoRuntime => "a shared call can only be joined inside a tokio runtime",
        })
    }
}

impl<E: Error + 'static> Error for FlightError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}
