//! How a case ends.

use std::fmt;

use crate::answer::Answer;

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The service did what is right. What was seen.
    Pass(String),
    /// It did not. The exchange that shows it.
    Fail(Exchange),
    /// It could not be judged: which ability is missing, and how to give it.
    Skip(String),
}

/// What was sent, what should have come back, what did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The request, in one line.
    pub request: String,
    /// What is right.
    pub expected: String,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: expected {}, saw {}",
            self.request, self.expected, self.seen
        )
    }
}

/// Why a case ends before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    Fail(Exchange),
    Skip(String),
}

/// What was seen, or why it stopped.
pub(crate) type Outcome = Result<String, Stop>;

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Ok(seen) => Verdict::Pass(seen),
            Err(Stop::Fail(exchange)) => Verdict::Fail(exchange),
            Err(Stop::Skip(reason)) => Verdict::Skip(reason),
        }
    }
}

/// A failure of a request.
pub(crate) fn fail(
    request: impl Into<String>,
    expected: impl Into<String>,
    seen: impl Into<String>,
) -> Stop {
    Stop::Fail(Exchange {
        request: request.into(),
        expected: expected.into(),
        seen: seen.into(),
    })
}

/// A case that cannot be judged.
pub(crate) fn skip(reason: impl Into<String>) -> Stop {
    Stop::Skip(reason.into())
}

impl Answer {
    /// Goes on only if the answer is right.
    pub(crate) fn must(&self, right: bool, expected: &str) -> Result<(), Stop> {
        match right {
            true => Ok(()),
            false => Err(fail(&self.request, expected, self.to_string())),
        }
    }
}
