//! What of a board is shown.

use std::fmt;
use std::time::Duration;

use super::live::Live;
use super::recent::Finished;
use crate::{Cause, Stage};

/// What of a board is shown. Shows everything by default, 200 rows of a kind at most.
///
/// ```
/// use tower_stage::{Filter, Stage};
///
/// let filter = Filter::from_query("stage=upstream_called&min_age_ms=1500&limit=20")?;
/// assert_eq!(filter, Filter::new().stage(Stage::UpstreamCalled).min_age_ms(1500).limit(20));
/// assert!(Filter::from_query("outcome=unheard_of").is_err());
/// # Ok::<(), tower_stage::BadFilter>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Filter {
    stage: Option<Stage>,
    min_age: Duration,
    outcome: Option<Cause>,
    limit: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            stage: None,
            min_age: Duration::ZERO,
            outcome: None,
            limit: 200,
        }
    }
}

impl Filter {
    /// Shows everything, 200 rows of a kind at most.
    pub fn new() -> Self {
        Self::default()
    }

    /// Of the live rows, only those in this stage.
    pub fn stage(mut self, stage: Stage) -> Self {
        self.stage = Some(stage);
        self
    }

    /// Of the live rows, only those that are in their stage for this long, in milliseconds.
    pub fn min_age_ms(mut self, ms: u64) -> Self {
        self.min_age = Duration::from_millis(ms);
        self
    }

    /// Of the finished rows, only those that ended this way.
    pub fn outcome(mut self, outcome: Cause) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// Rows of a kind at most: the oldest of the live, the newest of the finished. Default: 200.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// From the query of a URL: `stage`, `min_age_ms`, `outcome`, `limit`. Other parameters are left alone.
    ///
    /// # Errors
    /// A value that is no known name or no number.
    pub fn from_query(query: &str) -> Result<Self, BadFilter> {
        let mut filter = Self::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let bad = |wants| BadFilter {
                parameter: name.to_owned(),
                wants,
            };
            match name {
                "stage" => {
                    filter.stage = Some(Stage::named(value).ok_or_else(|| bad("a stage"))?);
                }
                "outcome" => {
                    filter.outcome = Some(Cause::named(value).ok_or_else(|| bad("an outcome"))?);
                }
                "min_age_ms" => {
                    let ms = value.parse().map_err(|_| bad("whole milliseconds"))?;
                    filter.min_age = Duration::from_millis(ms);
                }
                "limit" => filter.limit = value.parse().map_err(|_| bad("a number"))?,
                _ => {}
            }
        }
        Ok(filter)
    }

    pub(crate) fn admits_live(&self, row: &Live) -> bool {
        self.stage.is_none_or(|stage| row.stage() == stage) && row.age() >= self.min_age
    }

    pub(crate) fn admits_finished(&self, row: &Finished) -> bool {
        self.outcome
            .is_none_or(|outcome| row.outcome().cause == outcome)
    }

    pub(crate) fn at_most(&self) -> usize {
        self.limit
    }
}

/// A filter that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFilter {
    parameter: String,
    wants: &'static str,
}

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` wants {}", self.parameter, self.wants)
    }
}

impl std::error::Error for BadFilter {}
