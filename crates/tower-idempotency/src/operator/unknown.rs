//! Which outcomes are unknown.

use std::fmt;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tower_claim::store::{RecordView, State};
use tower_claim::{Key, StoreError, Token};

use super::{Operator, READS, is_behind_hook, is_ours, waits_for_hook};
use crate::admit::lead;
use crate::layer::LABEL;
use crate::record::{Before, Marker};

/// How many records are looked at for one page.
const PAGE: usize = 1000;

/// One page of unknown outcomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPage {
    /// Those among the records that were looked at; there may be none.
    pub outcomes: Vec<UnknownOutcome>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Key>,
}

/// A run that began, and of which nobody knows how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownOutcome {
    /// The record.
    pub key: Key,
    /// The token of the run. Whoever resolves says it, so that nothing newer is resolved unseen.
    pub token: Token,
    /// How long it has been unknown.
    pub since: Duration,
    /// When it is forgotten, and the key free: what is left of the unfinished keep.
    pub forgotten_in: Duration,
    /// How long ago the run gave its last sign of life.
    pub last_beat: Duration,
    /// The last [progress](crate::IdempotentRun::progress) it told.
    pub progress: u64,
    /// Whether it had passed its point of no return.
    pub marked: bool,
    /// Whether a reconcile hook was asked, and could not tell.
    pub hook_asked: bool,
    /// Whether the next repeat asks the reconcile hook, which has not said anything for good yet.
    pub waits_for_hook: bool,
    /// Of one that waits for its hook: the token of the last that asked it, zero where none is remembered (a claim that
    /// was given back is remembered for seconds).
    pub hook_token: Token,
}

impl Operator {
    /// Unknown outcomes among the records from `from` on (`None`: from the start). The records of all idempotency
    /// layers on this store are looked at, whatever their namespace, a thousand for each page. Where the layer has a
    /// reconcile hook, those that [wait for it](UnknownOutcome::waits_for_hook) are among them: for that the finished
    /// records are read, too.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn unknown(&self, from: Option<Key>) -> Result<UnknownPage, StoreError> {
        let page = self.store.dyn_scan(from, PAGE).await?;
        let ours = page.records.into_iter().filter(is_ours);
        let looked = stream::iter(ours.map(|record| self.look_at(record))).buffered(READS);
        let outcomes: Vec<_> = looked.try_collect().await?;
        Ok(UnknownPage {
            outcomes: outcomes.into_iter().flatten().collect(),
            next: page.next,
        })
    }

    /// The record, if its outcome is unknown.
    async fn look_at(&self, record: RecordView) -> Result<Option<UnknownOutcome>, StoreError> {
        let may_wait = record.state == State::Done && &*record.label == LABEL;
        if !may_wait || self.shared.reconcile.is_none() {
            return Ok(UnknownOutcome::of(&record));
        }
        let done = self.shared.finished(record.key, record.token).await?;
        let Some(marker @ Marker::Ask(before)) = done.as_ref().and_then(lead) else {
            return Ok(None);
        };
        let next = marker.leads_to(record.key, record.token).key;
        let next = self.store.dyn_peek(next).await?;
        let waits = waits_for_hook(next.as_ref());
        Ok(waits.map(|asked| UnknownOutcome::waiting(&record, before, asked)))
    }
}

impl UnknownOutcome {
    /// Where the hook of one that waits for it is asked.
    pub(super) fn asked_at(&self) -> Key {
        let marker = Marker::Ask(Before::default());
        marker.leads_to(self.key, self.token).key
    }

    pub(super) fn of(record: &RecordView) -> Option<Self> {
        (record.state == State::Unknown).then(|| Self {
            key: record.key,
            token: record.token,
            since: record.since,
            forgotten_in: record.expires_in,
            last_beat: record.last_beat,
            progress: record.progress,
            marked: record.marked,
            hook_asked: is_behind_hook(record),
            waits_for_hook: false,
            hook_token: Token::ZERO,
        })
    }

    /// Of a record that leads to where the hook is asked.
    pub(super) fn waiting(record: &RecordView, before: Before, asked: Token) -> Self {
        Self {
            key: record.key,
            token: record.token,
            since: record.since,
            forgotten_in: record.expires_in,
            // At the least: the record of the lapsed run is gone.
            last_beat: record.since,
            progress: before.progress,
            marked: before.was_marked,
            hook_asked: false,
            waits_for_hook: true,
            hook_token: asked,
        }
    }
}

/// In one line, for people.
impl fmt::Display for UnknownOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let past = match (self.hook_asked, self.marked) {
            _ if self.waits_for_hook => "the next repeat asks the reconcile hook",
            (true, _) => "the reconcile hook could not tell",
            (false, true) => "past its point of no return",
            (false, false) => "not past a point of no return",
        };
        write!(
            f,
            "{}: unknown for {:?}, {past}; last sign of life {:?} ago, progress {}; forgotten in {:?}",
            self.key, self.since, self.last_beat, self.progress, self.forgotten_in
        )
    }
}
