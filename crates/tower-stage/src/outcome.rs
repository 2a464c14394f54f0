//! How a request ended: cause × stage.

use std::fmt;

use crate::Stage;

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The whole response went out. A status of 4xx is the client's affair, and done.
    Done,
    /// A status of 5xx, a gRPC code that is a server's fault, an error of the service or of the body, or
    /// a body shorter than announced.
    Failed,
    /// A layer answered instead of the inner service (see [`StageHandle::rejected`](crate::StageHandle::rejected)).
    Rejected,
    /// Dropped before the head of a response: the client left, or a layer outside gave up.
    Cancelled,
    /// Dropped after the head, in mid-body.
    ClientGone,
    /// A layer or the handler said so (see [`StageHandle::timed_out`](crate::StageHandle::timed_out)).
    /// A timeout layer *outside* cannot be told from a client that left.
    TimedOut,
    /// The handler or the body panicked.
    Panicked,
    /// The connection left HTTP.
    Upgraded,
    /// Dropped while the process shuts down.
    Shutdown,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 9] = [
        Cause::Done,
        Cause::Failed,
        Cause::Rejected,
        Cause::Cancelled,
        Cause::ClientGone,
        Cause::TimedOut,
        Cause::Panicked,
        Cause::Upgraded,
        Cause::Shutdown,
    ];

    /// The cause of this name.
    pub fn named(name: &str) -> Option<Cause> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }

    /// Its name in JSON, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Done => "done",
            Cause::Failed => "failed",
            Cause::Rejected => "rejected",
            Cause::Cancelled => "cancelled",
            Cause::ClientGone => "client_gone",
            Cause::TimedOut => "timed_out",
            Cause::Panicked => "panicked",
            Cause::Upgraded => "upgraded",
            Cause::Shutdown => "shutdown",
        }
    }

    /// One letter for two-letter outcome codes.
    pub fn letter(self) -> char {
        match self {
            Cause::Done => 'D',
            Cause::Failed => 'F',
            Cause::Rejected => 'R',
            Cause::Cancelled => 'C',
            Cause::ClientGone => 'G',
            Cause::TimedOut => 'T',
            Cause::Panicked => 'P',
            Cause::Upgraded => 'U',
            Cause::Shutdown => 'S',
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a request ended: why, and in which stage.
///
/// ```
/// use tower_stage::{Cause, Outcome, Stage};
///
/// let outcome = Outcome { cause: Cause::ClientGone, stage: Stage::Streaming };
/// assert_eq!(outcome.to_string(), "client_gone@streaming");
/// assert_eq!(outcome.code(), "GS");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// Why it ended.
    pub cause: Cause,
    /// Where it was.
    pub stage: Stage,
}

impl Outcome {
    /// Two letters, cause and stage, for logs.
    pub fn code(self) -> String {
        [self.cause.letter(), self.stage.letter()].iter().collect()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.cause, self.stage)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn causes_have_names_and_letters_of_their_own() {
        let letters: HashSet<_> = Cause::ALL.map(Cause::letter).into();
        assert_eq!(letters.len(), Cause::ALL.len());
        for cause in Cause::ALL {
            assert_eq!(Cause::named(cause.name()), Some(cause));
        }
    }
}
