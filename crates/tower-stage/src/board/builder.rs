//! The settings of a board.

use std::sync::Arc;
use std::time::Duration;

use tower_claim::{Clock, ConfigError, SystemClock};

use super::shared::{OnFinish, Shared};
use super::table::Table;
use super::{Board, Core, Finished, Thresholds};
use crate::Stage;
use crate::stage::STAGES;

/// A table of more rows than this is a leak with a number on it.
const MOST_TRACKED: usize = 1_000_000;
const MOST_RECENT: usize = 100_000;

/// The settings of a [`Board`].
///
/// ```
/// use std::time::Duration;
/// use tower_stage::{Board, Stage};
///
/// let board = Board::builder()
///     .stuck_after(Duration::from_secs(5))
///     .stuck_after_in(Stage::UpstreamCalled, Duration::from_secs(1))
///     .never_stuck_in(Stage::Streaming)
///     .build()?;
/// # Ok::<(), tower_claim::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct BoardBuilder {
    max_tracked: usize,
    recent: usize,
    thresholds: Thresholds,
    on_finish: Option<OnFinish>,
    clock: Arc<dyn Clock>,
}

impl BoardBuilder {
    pub(crate) fn new() -> Self {
        Self {
            max_tracked: 10_000,
            recent: 1_000,
            thresholds: Thresholds {
                general: Duration::from_secs(2),
                of_stage: [None; STAGES],
            },
            on_finish: None,
            clock: Arc::new(SystemClock),
        }
    }

    /// Requests under way at once, at most; further ones are served without a row, and counted. Memory
    /// grows with what was really under way, about 500 bytes per row. Default: 10,000.
    pub fn max_tracked(mut self, rows: usize) -> Self {
        self.max_tracked = rows;
        self
    }

    /// How many of the requests that ended are kept; 0 keeps none. Default: 1,000, about 500 bytes each.
    pub fn recent(mut self, rows: usize) -> Self {
        self.recent = rows;
        self
    }

    /// A row that is longer than this in its stage is stuck. Default: 2 s.
    pub fn stuck_after(mut self, threshold: Duration) -> Self {
        self.thresholds.general = threshold;
        self
    }

    /// Another threshold for one stage. Default: none.
    pub fn stuck_after_in(self, stage: Stage, threshold: Duration) -> Self {
        self.set(stage, Some(threshold))
    }

    /// A stage that may last as long as it likes, such as [`Stage::Streaming`] where slow clients are
    /// nobody's fault. Default: no stage.
    pub fn never_stuck_in(self, stage: Stage) -> Self {
        self.set(stage, None)
    }

    /// Called once for every tracked request that ended, where it ended: for metrics and logs. It must
    /// neither block nor panic. Default: nothing.
    pub fn on_finish(mut self, sink: impl Fn(&Finished) + Send + Sync + 'static) -> Self {
        self.on_finish = Some(OnFinish(Arc::new(sink)));
        self
    }

    /// Where the time comes from. Default: [`SystemClock`], which goes on while the machine is suspended.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The board.
    ///
    /// # Errors
    /// A threshold of zero; no row, or over a million rows, of either kind.
    pub fn build(self) -> Result<Board, ConfigError> {
        if self.thresholds.general.is_zero() {
            return Err(ConfigError::new(
                "stuck_after",
                "zero would call every request stuck; name a duration",
            ));
        }
        if self
            .thresholds
            .of_stage
            .iter()
            .flatten()
            .flatten()
            .any(Duration::is_zero)
        {
            return Err(ConfigError::new(
                "stuck_after_in",
                "zero would call every request stuck; `never_stuck_in` turns a stage off",
            ));
        }
        if !(1..=MOST_TRACKED).contains(&self.max_tracked) {
            return Err(ConfigError::new(
                "max_tracked",
                format!("{} is not 1 to {MOST_TRACKED} rows", self.max_tracked),
            ));
        }
        if self.recent > MOST_RECENT {
            return Err(ConfigError::new(
                "recent",
                format!("{} is more than {MOST_RECENT} rows", self.recent),
            ));
        }
        Ok(self.unchecked())
    }

    /// Without the checks: for settings that are known to be good.
    pub(crate) fn unchecked(self) -> Board {
        let shared = Shared::new(self.clock, self.recent, self.on_finish);
        Board {
            core: Arc::new(Core {
                table: Table::new(self.max_tracked, Arc::new(shared)),
                thresholds: self.thresholds,
            }),
        }
    }

    fn set(mut self, stage: Stage, threshold: Option<Duration>) -> Self {
        self.thresholds.of_stage[stage.index() % STAGES] = Some(threshold);
        self
    }
}
