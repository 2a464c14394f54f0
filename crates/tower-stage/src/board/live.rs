//! A request that is under way.

use std::time::Duration;

use serde::Serialize;

use super::route::Route;
use super::slot::{RowId, Snapshot};
use super::times::StageTimes;
use crate::{Blocker, Stage, WaitReason};

/// A request that is under way, as it was when the board was read.
#[derive(Debug, Clone, Serialize)]
pub struct Live {
    #[serde(serialize_with = "super::json::text")]
    id: RowId,
    method: &'static str,
    route: Route,
    #[serde(serialize_with = "super::json::text")]
    stage: Stage,
    #[serde(rename = "age_ms", serialize_with = "super::json::millis")]
    age: Duration,
    #[serde(rename = "total_age_ms", serialize_with = "super::json::millis")]
    total_age: Duration,
    wait: Option<Wait>,
    stuck: bool,
    #[serde(skip)]
    spent: StageTimes,
    #[serde(skip)]
    polls: u32,
}

/// What a request waits for.
#[derive(Debug, Clone, Serialize)]
pub struct Wait {
    /// Why.
    #[serde(serialize_with = "super::json::text")]
    pub reason: WaitReason,
    /// Who blocks it.
    #[serde(serialize_with = "super::json::text")]
    pub blocker: Blocker,
}

impl Live {
    pub(crate) fn new(
        row: Snapshot,
        now: u64,
        threshold: impl Fn(Stage) -> Option<Duration>,
    ) -> Self {
        let age = Duration::from_nanos(now.saturating_sub(row.entered));
        Self {
            id: row.id,
            method: row.method,
            route: row.route,
            stage: row.stage,
            age,
            total_age: Duration::from_nanos(now.saturating_sub(row.started)),
            wait: row.wait.map(|(reason, blocker)| Wait { reason, blocker }),
            stuck: threshold(row.stage).is_some_and(|threshold| age > threshold),
            spent: row.spent,
            polls: row.polls,
        }
    }

    /// The row's id.
    pub fn id(&self) -> RowId {
        self.id
    }

    /// The method; `_OTHER` for what HTTP does not define.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// The template of the route; `unmatched` without one.
    pub fn route(&self) -> &str {
        self.route.as_str()
    }

    /// Where it is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Time since it entered that stage.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Time since it came.
    pub fn total_age(&self) -> Duration {
        self.total_age
    }

    /// What it waits for.
    pub fn wait(&self) -> Option<&Wait> {
        self.wait.as_ref()
    }

    /// Whether it is longer in its stage than the board's threshold for it.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Time in the stages that it has left.
    pub fn stages(&self) -> &StageTimes {
        &self.spent
    }

    /// Whether a thread was inside its poll.
    pub fn is_polled(&self) -> bool {
        self.polls % 2 == 1
    }

    pub(crate) fn polls(&self) -> u32 {
        self.polls
    }
}
