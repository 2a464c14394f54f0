//! Where a request is.

use std::fmt;

use crate::NameError;
use crate::names::Names;

const CORE: [Stage; 6] = [
    Stage::Received,
    Stage::Queued,
    Stage::Validated,
    Stage::UpstreamCalled,
    Stage::Persisted,
    Stage::Streaming,
];

/// Core and custom stages together.
pub(crate) const STAGES: usize = 32;

static CUSTOM: Names<{ STAGES - CORE.len() }> = Names::new();

/// Where a request is: the words that every layer and handler of the family uses.
///
/// The order below is the usual one, not a law: a stage may be skipped, and entered again (the times
/// add up). A stage that was never entered is absent, not zero.
///
/// ```
/// use tower_stage::Stage;
///
/// let rendering = Stage::register("rendering")?;
/// assert_eq!(rendering.name(), "rendering");
/// assert_eq!(Stage::named("rendering"), Some(rendering));
/// assert_eq!(Stage::named("upstream_called"), Some(Stage::UpstreamCalled));
/// # Ok::<(), tower_stage::NameError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The request is here. A handler that never marks stays in this stage until its response's head.
    Received,
    /// Waiting for the inner service to be ready (queue-aware layers only).
    Queued,
    /// The request is known to be well-formed and allowed.
    Validated,
    /// Another service was called, its answer is awaited.
    UpstreamCalled,
    /// The effect is written down.
    Persisted,
    /// The head is out, the body is on its way. The layer marks this by itself.
    Streaming,
    /// One of your own. See [`Stage::register`].
    Custom(CustomStage),
}

/// A registered stage.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CustomStage(u8);

impl Stage {
    /// Registers a stage of your own, for the whole process: 1 to 32 characters of `a-z0-9_`, 26 names
    /// at most. The same name again, or the name of a core stage, answers the stage that is there.
    ///
    /// # Errors
    /// The name is malformed, or all places are taken.
    pub fn register(name: &'static str) -> Result<Stage, NameError> {
        match Self::named(name) {
            Some(stage) => Ok(stage),
            None => CUSTOM.register(name).map(|i| Stage::Custom(CustomStage(i))),
        }
    }

    /// The core or registered stage of this name.
    pub fn named(name: &str) -> Option<Stage> {
        CORE.into_iter()
            .find(|stage| stage.name() == name)
            .or_else(|| CUSTOM.find(name).map(|i| Stage::Custom(CustomStage(i))))
    }

    /// Its name in JSON, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Received => "received",
            Stage::Queued => "queued",
            Stage::Validated => "validated",
            Stage::UpstreamCalled => "upstream_called",
            Stage::Persisted => "persisted",
            Stage::Streaming => "streaming",
            Stage::Custom(CustomStage(index)) => CUSTOM.name(index),
        }
    }

    /// One letter for two-letter outcome codes; every custom stage is `X`.
    pub fn letter(self) -> char {
        match self {
            Stage::Received => 'R',
            Stage::Queued => 'Q',
            Stage::Validated => 'V',
            Stage::UpstreamCalled => 'U',
            Stage::Persisted => 'P',
            Stage::Streaming => 'S',
            Stage::Custom(_) => 'X',
        }
    }
}

#[cfg(feature = "layer")]
impl Stage {
    /// A number below [`STAGES`].
    pub(crate) fn index(self) -> usize {
        match self {
            Stage::Received => 0,
            Stage::Queued => 1,
            Stage::Validated => 2,
            Stage::UpstreamCalled => 3,
            Stage::Persisted => 4,
            Stage::Streaming => 5,
            Stage::Custom(CustomStage(index)) => CORE.len() + usize::from(index),
        }
    }

    /// The inverse of [`index`](Self::index).
    pub(crate) fn of_index(index: usize) -> Stage {
        CORE.get(index).copied().unwrap_or_else(|| {
            let custom = u8::try_from(index.saturating_sub(CORE.len())).unwrap_or(u8::MAX);
            Stage::Custom(CustomStage(custom))
        })
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for CustomStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CUSTOM.name(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_stage_is_found_by_its_name() {
        for stage in CORE {
            assert_eq!(Stage::named(stage.name()), Some(stage));
        }
        assert_eq!(Stage::named("Received"), None);
    }

    #[test]
    fn a_core_name_registers_as_the_core_stage() {
        assert_eq!(Stage::register("persisted"), Ok(Stage::Persisted));
    }

    #[cfg(feature = "layer")]
    #[test]
    fn index_and_stage_are_inverse() {
        let custom = Stage::register("stage_test").unwrap();
        for stage in CORE.into_iter().chain([custom]) {
            assert!(stage.index() < STAGES);
            assert_eq!(Stage::of_index(stage.index()), stage);
        }
    }
}
