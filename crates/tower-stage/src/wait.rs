//! What a request waits for, and who blocks it.

use std::fmt;
use std::sync::Arc;

use crate::names::Names;
use crate::row::Row;
use crate::{NameError, StageHandle};

const CORE: [WaitReason; 5] = [
    WaitReason::Permit,
    WaitReason::Lease,
    WaitReason::Flight,
    WaitReason::Replay,
    WaitReason::UpstreamConnect,
];

static CUSTOM: Names<27> = Names::new();

/// Why a request does not move: beside its [`Stage`](crate::Stage), and independent of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitReason {
    /// A place under a limit.
    Permit,
    /// A lease that another holds.
    Lease,
    /// The result of a call that another request has started.
    Flight,
    /// The outcome of the first run of the same business request.
    Replay,
    /// A connection to another service.
    UpstreamConnect,
    /// One of your own. See [`WaitReason::register`].
    Custom(CustomReason),
}

/// A registered wait reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CustomReason(u8);

impl WaitReason {
    /// Registers a reason of your own, for the whole process: 1 to 32 characters of `a-z0-9_`, 27 names
    /// at most. A name that is there already answers the reason that is there.
    ///
    /// # Errors
    /// The name is malformed, or all places are taken.
    pub fn register(name: &'static str) -> Result<WaitReason, NameError> {
        match CORE.into_iter().find(|reason| reason.name() == name) {
            Some(reason) => Ok(reason),
            None => CUSTOM
                .register(name)
                .map(|i| WaitReason::Custom(CustomReason(i))),
        }
    }

    /// Its name in JSON, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            WaitReason::Permit => "permit",
            WaitReason::Lease => "lease",
            WaitReason::Flight => "flight",
            WaitReason::Replay => "replay",
            WaitReason::UpstreamConnect => "upstream_connect",
            WaitReason::Custom(CustomReason(index)) => CUSTOM.name(index),
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for CustomReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CUSTOM.name(self.0))
    }
}

/// Longest blocker id that is shown, in bytes. The rest is cut.
const LONGEST_BLOCKER: usize = 64;

/// Who blocks: a short id that means something beside the other rows, such as the number of a flight,
/// the prefix of a key, or the id of another row. Never a secret: it is shown as it is.
///
/// A number costs nothing until it is shown; a text is cut at 64 bytes.
#[derive(Debug, Clone)]
pub struct Blocker(Id);

#[derive(Debug, Clone)]
enum Id {
    Number(u64),
    Static(&'static str),
    Shared(Arc<str>),
}

impl From<u64> for Blocker {
    fn from(number: u64) -> Self {
        Self(Id::Number(number))
    }
}

impl From<&'static str> for Blocker {
    fn from(text: &'static str) -> Self {
        Self(Id::Static(cut(text)))
    }
}

impl From<String> for Blocker {
    fn from(text: String) -> Self {
        Self(Id::Shared(Arc::from(cut(&text))))
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(LONGEST_BLOCKER);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Id::Number(number) => write!(f, "{number}"),
            Id::Static(text) => f.write_str(text),
            Id::Shared(text) => f.write_str(text),
        }
    }
}

/// The request waits as long as this lives. Dropping it clears the wait, so a cancelled waiter leaves
/// nothing behind. Of several at once the newest is shown.
#[must_use = "the wait is cleared when this is dropped"]
#[derive(Debug)]
pub struct Waiting {
    waits: Option<(Row, u32)>,
}

impl Waiting {
    #[cfg_attr(
        not(feature = "layer"),
        allow(unused, reason = "no row can exist, which the compiler finds out")
    )]
    pub(crate) fn begin(handle: &StageHandle, reason: WaitReason, blocker: Blocker) -> Self {
        let waits = handle
            .row()
            .and_then(|row| Some((row.clone(), row.begin_wait(reason, blocker)?)));
        Self { waits }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((row, wait)) = self.waits.take() {
            row.end_wait(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_blocker_is_cut_between_characters() {
        let text = "é".repeat(40);
        let shown = Blocker::from(text.clone()).to_string();
        assert_eq!(shown.len(), 64);
        assert!(text.starts_with(&shown));
        assert_eq!(
            Blocker::from(format!("a{text}")).to_string().len(),
            63,
            "no half character"
        );
    }

    #[test]
    fn a_core_reason_registers_as_itself() {
        assert_eq!(WaitReason::register("flight"), Ok(WaitReason::Flight));
        let own = WaitReason::register("wait_test").unwrap();
        assert_eq!(own.name(), "wait_test");
    }
}
