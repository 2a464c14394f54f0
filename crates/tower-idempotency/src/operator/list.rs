//! Which records there are.

use std::fmt;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tower_claim::store::{RecordView, State};
use tower_claim::{Key, StoreError, Token};

use super::{Operator, READS, SeenRecord, is_behind_hook, is_ours};
use crate::admit::lead;
use crate::record::{Marker, is_withdrawn};

/// How many records are looked at for one page: the finished ones are read.
const PAGE: usize = 200;
/// How often a record may change while it is looked at, before it is left out.
const LOOKS: u32 = 3;

/// One page of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordPage {
    /// Those of idempotency layers among the records that were looked at, in the engine's order; there may be none.
    pub records: Vec<ListedRecord>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Key>,
}

/// A record, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedRecord {
    /// The record. It is a hash: what it was made of, the namespace, the scope and the business key, it does not tell.
    pub key: Key,
    /// The token of its last run, or the one that an operator raised it to.
    pub token: Token,
    /// What there is.
    pub state: ListedState,
    /// How long ago that began: a run, its outcome, the doubt.
    pub since: Duration,
    /// When it ends by itself: what is left of a lease, of the keep of an outcome, of the unfinished keep of an unknown
    /// one. Zero when that has passed.
    pub expires_in: Duration,
    /// How long ago the run gave its last sign of life; zero where it is done.
    pub last_beat: Duration,
    /// The last [progress](crate::IdempotentRun::progress) that a run told which is not done.
    pub progress: u64,
    /// Whether a run that is not done has passed its point of no return.
    pub marked: bool,
    /// Which run of the work it is, in a row of such that took over: 1 for the first. Zero where none is going.
    pub attempt: u32,
    /// Whether it lies behind a run that was lost, where a reconcile hook is asked before a handler runs.
    pub behind_hook: bool,
}

/// What a record says of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListedState {
    /// A run is going; or a reconcile hook is asked, where the record lies [behind one](ListedRecord::behind_hook).
    Running,
    /// A run was lost, or is paused past its lease. The next repeat takes over.
    Lapsed,
    /// The work is done. Whether its response was kept, [`explain`](Operator::explain) tells.
    Done,
    /// Nobody knows how the run ended.
    Unknown,
    /// Its run has ended without having begun, since its mark was in doubt. The key is free when this expires.
    Withdrawn,
    /// Nothing but a marker: a run was lost here, and the work goes on under another key. A record of that key is
    /// listed, too, if there is one.
    LeadsOn {
        /// That key.
        to: Key,
        /// Whether a reconcile hook is asked there before anything runs; else an operator said that nothing happened.
        to_hook: bool,
    },
}

impl Operator {
    /// The records from `from` on (`None`: from the start): what runs, what is done, what is unknown. The records of
    /// all idempotency layers on this store are looked at, whatever their namespace, two hundred for each page; keys
    /// that were given back have none. Whoever wants the oldest run first sorts.
    ///
    /// To tell an outcome from a marker, each finished record is read, with its response: that takes as many trips,
    /// sixteen at a time. What changes in between is listed as it is when it is read.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, ListedState};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let operator = IdempotencyLayer::new(store.clone()).operator(store);
    ///
    /// let (mut running, mut from) = (Vec::new(), None);
    /// loop {
    ///     let page = operator.list(from).await?;
    ///     running.extend(page.records.into_iter().filter(|it| it.state == ListedState::Running));
    ///     let Some(next) = page.next else { break };
    ///     from = Some(next);
    /// }
    /// running.sort_by_key(|run| std::cmp::Reverse(run.since));
    /// for run in running.iter().take(10) {
    ///     println!("{run}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn list(&self, from: Option<Key>) -> Result<RecordPage, StoreError> {
        let page = self.store.dyn_scan(from, PAGE).await?;
        let ours = page.records.into_iter().filter(is_ours);
        let read = stream::iter(ours.map(|record| self.read(record))).buffered(READS);
        let records: Vec<_> = read.try_collect().await?;
        Ok(RecordPage {
            records: records.into_iter().flatten().collect(),
            next: page.next,
        })
    }

    async fn read(&self, mut record: RecordView) -> Result<Option<ListedRecord>, StoreError> {
        for _ in 0..LOOKS {
            let state = match record.state {
                State::Held if record.lapsed => ListedState::Lapsed,
                State::Held => ListedState::Running,
                State::Unknown => ListedState::Unknown,
                State::Done => match self.read_done(&record).await? {
                    Some(state) => state,
                    // It has changed since it was scanned.
                    None => match self.store.dyn_peek(record.key).await? {
                        Some(now) => {
                            record = now;
                            continue;
                        }
                        None => return Ok(None),
                    },
                },
                _ => return Ok(None),
            };
            return Ok(Some(ListedRecord::of(&record, state)));
        }
        Ok(None)
    }

    async fn read_done(&self, record: &RecordView) -> Result<Option<ListedState>, StoreError> {
        let done = self.shared.finished(record.key, record.token).await?;
        Ok(done.map(|done| match lead(&done) {
            Some(marker) => ListedState::LeadsOn {
                to: marker.leads_to(record.key, record.token).key,
                to_hook: matches!(marker, Marker::Ask(_)),
            },
            None if is_withdrawn(&done) => ListedState::Withdrawn,
            None => ListedState::Done,
        }))
    }
}

impl ListedRecord {
    /// What was seen, for [`Operator::purge`].
    pub fn seen(&self) -> SeenRecord {
        SeenRecord {
            key: self.key,
            token: self.token,
        }
    }

    fn of(record: &RecordView, state: ListedState) -> Self {
        Self {
            key: record.key,
            token: record.token,
            state,
            since: record.since,
            expires_in: record.expires_in,
            last_beat: record.last_beat,
            progress: record.progress,
            marked: record.marked,
            attempt: record.attempt,
            behind_hook: is_behind_hook(record),
        }
    }
}

/// In one line, for people.
impl fmt::Display for ListedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.key)?;
        match self.state {
            ListedState::Running if self.behind_hook => {
                f.write_str("its hook is asked, or it runs")
            }
            ListedState::Running => f.write_str("running"),
            ListedState::Lapsed => f.write_str("lapsed"),
            ListedState::Done => f.write_str("done"),
            ListedState::Unknown => f.write_str("unknown"),
            ListedState::Withdrawn => f.write_str("ended without having begun"),
            ListedState::LeadsOn { to, to_hook: true } => {
                write!(f, "lost, its hook is asked under {to}")
            }
            ListedState::LeadsOn { to, .. } => write!(f, "lost, and may run under {to}"),
        }?;
        write!(f, " for {:?}", self.since)?;
        if let ListedState::Running | ListedState::Lapsed | ListedState::Unknown = self.state {
            let past = if self.marked { "past" } else { "before" };
            write!(
                f,
                ", {past} its point of no return; last sign of life {:?} ago, progress {}",
                self.last_beat, self.progress
            )?;
        }
        write!(f, "; {:?} left", self.expires_in)
    }
}
