//! Errors by meaning.

use std::error::Error as StdError;
use std::fmt;

type Source = Box<dyn StdError + Send + Sync>;

/// Why a store did not answer a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The call was not applied: the engine cannot be reached, or refused it.
    Unavailable(Source),
    /// The call may or may not have been applied: no answer in time, or the connection broke after the
    /// call was sent. Repeat it with the same nonce.
    Ambiguous(Source),
    /// No room for a new claim. Nothing live or finished was dropped for it.
    Full,
    /// The record cannot be read: foreign, truncated, or of a future version. Carries the key's prefix.
    Garbled {
        /// First eight hex digits of the key.
        key_prefix: String,
        /// What is wrong with it.
        source: Source,
    },
    /// Cannot be done, however often it is tried: by this engine, or with this claim. Nothing was sent.
    Unsupported(&'static str),
}

impl StoreError {
    /// The call was not applied.
    pub fn unavailable(source: impl Into<Source>) -> Self {
        Self::Unavailable(source.into())
    }

    /// The call may have been applied.
    pub fn ambiguous(source: impl Into<Source>) -> Self {
        Self::Ambiguous(source.into())
    }

    /// Whether the same call may succeed when it is repeated.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Ambiguous(_) | Self::Full)
    }

    /// Whether the call may have been applied all the same.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Ambiguous(_))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(_) => f.write_str("the store is unavailable"),
            Self::Ambiguous(_) => {
                f.write_str("the store's answer is missing: the call may have been applied")
            }
            Self::Full => f.write_str("the store is full"),
            Self::Garbled { key_prefix, .. } => {
                write!(f, "the record {key_prefix}… cannot be read")
            }
            Self::Unsupported(what) => write!(f, "not possible: {what}"),
        }
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Unavailable(source) | Self::Ambiguous(source) | Self::Garbled { source, .. } => {
                Some(source.as_ref())
            }
            Self::Full | Self::Unsupported(_) => None,
        }
    }
}

/// A setting that a builder refuses, with the mend in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    setting: &'static str,
    problem: String,
}

impl ConfigError {
    /// `problem` says what is wrong and what to write instead.
    pub fn new(setting: &'static str, problem: impl Into<String>) -> Self {
        Self {
            setting,
            problem: problem.into(),
        }
    }

    /// The name of the builder's method.
    pub fn setting(&self) -> &'static str {
        self.setting
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.setting, self.problem)
    }
}

impl StdError for ConfigError {}
