//! The board: every request that is under way, and the last that ended.

mod builder;
mod filter;
mod free;
mod json;
mod live;
mod recent;
mod route;
mod shared;
pub(crate) mod slot;
mod table;
mod times;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;

pub use builder::BoardBuilder;
pub use filter::{BadFilter, Filter};
pub use live::{Live, Wait};
pub use recent::Finished;
pub(crate) use recent::Sent;
pub(crate) use route::Route;
use shared::Shared;
pub use slot::RowId;
use table::Table;
pub use times::StageTimes;

use crate::Stage;
use crate::row::Row;
use crate::stage::STAGES;

/// Every request that is under way, and the last that ended. Clones are the same board; give one to each
/// [`StageLayer`](crate::StageLayer).
///
/// It holds state, not events: every number is computed from the rows when it is asked for, so none can
/// drift, leak or go below zero. Reading blocks no mark. What is kept is bounded.
///
/// ```
/// use tower_stage::{Board, Filter};
///
/// let board = Board::new();
/// let page = board.json(&Filter::new());
/// assert!(page.starts_with(r#"{"version":1,"totals":{"in_flight":0,"#));
/// ```
#[derive(Clone)]
pub struct Board {
    core: Arc<Core>,
}

#[derive(Debug)]
struct Core {
    table: Table,
    thresholds: Thresholds,
}

/// After which time in a stage a row is stuck.
#[derive(Debug, Clone)]
pub(crate) struct Thresholds {
    pub(crate) general: Duration,
    /// By index of the stage; the inner `None` is "never".
    pub(crate) of_stage: [Option<Option<Duration>>; STAGES],
}

impl Thresholds {
    fn of(&self, stage: Stage) -> Option<Duration> {
        self.of_stage[stage.index() % STAGES].unwrap_or(Some(self.general))
    }
}

/// The numbers of a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Rows that are live now, counted one by one.
    pub in_flight: u64,
    /// Requests since the start that found the table full. They were served, and are on no list.
    pub untracked: u64,
    /// Marks, waits and ends since the start that came after their request had ended.
    pub late_marks: u64,
}

impl Board {
    /// A board of 10,000 requests under way and 1,000 that ended, where 2 s in a stage is stuck.
    pub fn new() -> Self {
        Self::builder().unchecked()
    }

    /// A board with settings of its own.
    pub fn builder() -> BoardBuilder {
        BoardBuilder::new()
    }

    /// The requests under way that `filter` admits, oldest first.
    pub fn live(&self, filter: &Filter) -> Vec<Live> {
        self.scan(filter).1
    }

    /// The requests that ended and that `filter` admits, newest first.
    pub fn recent(&self, filter: &Filter) -> Vec<Finished> {
        self.shared()
            .recent
            .iter()
            .filter(|row| filter.admits_finished(row))
            .take(filter.at_most())
            .collect()
    }

    /// The numbers.
    pub fn totals(&self) -> Totals {
        self.scan(&Filter::new().limit(0)).0
    }

    /// The board as JSON, version 1.
    ///
    /// `{"version": 1, "totals": {"in_flight", "untracked", "late_marks"}, "live": [{"id", "method",
    /// "route", "stage", "age_ms", "total_age_ms", "wait": {"reason", "blocker"} or null, "stuck"}],
    /// "recent": [{"id", "method", "route", "outcome", "stage", "status", "bytes", "total_ms", "stages":
    /// {name: ms}}]}`: `age_ms` is time in the current stage, times are milliseconds as floats, ids and
    /// blockers are strings, `status` is null when no head was sent. gRPC responses have `grpc_status`
    /// beside it. The totals do not depend on the filter.
    pub fn json(&self, filter: &Filter) -> String {
        let (totals, live) = self.scan(filter);
        let page = json::Page {
            version: 1,
            totals,
            live,
            recent: self.recent(filter),
        };
        serde_json::to_string(&page).unwrap_or_default()
    }

    /// From now on a request that is dropped unfinished ends as `shutdown`. Call it where graceful
    /// shutdown begins; [`live`](Self::live) then says who still holds it up.
    pub fn shutting_down(&self) {
        self.shared().shutting_down.store(true, Relaxed);
    }

    /// One walk over the table.
    fn scan(&self, filter: &Filter) -> (Totals, Vec<Live>) {
        let table = &self.core.table;
        let now = self.shared().now();
        let mut in_flight = 0;
        let mut rows = Vec::new();
        for slot in table.slots() {
            let Some(row) = slot.snapshot() else { continue };
            in_flight += 1;
            if filter.at_most() > 0 {
                let row = Live::new(row, now, |stage| self.core.thresholds.of(stage));
                if filter.admits_live(&row) {
                    rows.push(row);
                }
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.total_age()));
        rows.truncate(filter.at_most());
        let totals = Totals {
            in_flight,
            untracked: table.untracked(),
            late_marks: self.shared().late_marks.load(Relaxed),
        };
        (totals, rows)
    }

    fn shared(&self) -> &Shared {
        &self.core.table.shared
    }

    /// Time since the start of the board's clock.
    pub(crate) fn now(&self) -> Duration {
        self.shared().clock.now().elapsed()
    }

    pub(crate) fn threshold(&self, stage: Stage) -> Option<Duration> {
        self.core.thresholds.of(stage)
    }

    /// A row for a request; `None` when the table is full.
    pub(crate) fn open(&self, method: &'static str, route: Route) -> Option<Row> {
        let slot = self.core.table.take()?;
        let generation = slot.open(method, route);
        Some(Row::new(slot, generation))
    }
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board")
            .field("totals", &self.totals())
            .finish_non_exhaustive()
    }
}
