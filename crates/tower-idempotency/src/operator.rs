//! The operator's side: which outcomes are unknown, what became of a key, and what is to become of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Response;
use http::request::Parts;
use tower_claim::store::{DoneRecord, RecordView, Resolution, Resolved, State, Value};
use tower_claim::{ClaimAdmin, DynClaimAdmin, Key, StoreError, Token};

use crate::admit::lead;
use crate::entry::{Entry, Ticket};
use crate::layer::{IdempotencyLayer, LABEL, RECONCILE_LABEL};
use crate::record::{Before, Head, Marker, is_withdrawn};
use crate::shared::Shared;
use crate::way::{LONGEST_WAY, too_long};
use crate::weak::Warned;

/// How many records are looked at for one page.
const PAGE: usize = 1000;
/// How many of them are read at once.
const READS: usize = 16;

/// Lists unknown outcomes, explains keys, and resolves them: made by [`IdempotencyLayer::operator`]. For a page or a
/// command of your own; it serves nothing by itself.
///
/// An outcome is unknown when a run crashed or was lost behind its
/// [point of no return](crate::IdempotentRun::point_of_no_return), at any time under
/// [`LapsePolicy::Hold`](tower_claim::LapsePolicy::Hold), or when a
/// [reconcile hook](crate::IdempotencyBuilder::reconcile) could not tell, or not yet. Until somebody finds out what happened, repeats
/// are answered 409 `outcome-unknown`.
///
/// ```
/// use http::Response;
/// use tower_claim::MemoryStore;
/// use tower_idempotency::IdempotencyLayer;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let layer = IdempotencyLayer::new(store.clone());
/// let operator = layer.operator(store);
///
/// let mut from = None;
/// loop {
///     let page = operator.unknown(from).await?;
///     for outcome in &page.outcomes {
///         println!("{outcome}");
///         // What do the books say? Either:
///         operator.run_again(outcome).await?;
///         // or: operator.resolve_with(outcome, Response::new("ordered".into())).await?;
///         # let _: Response<&str> = Response::new("ordered");
///     }
///     let Some(next) = page.next else { break };
///     from = Some(next);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Operator {
    shared: Arc<Shared>,
    store: Arc<dyn DynClaimAdmin>,
}

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
    /// Whether the next repeat asks the reconcile hook, which has not said anything for good yet. Such an outcome is the
    /// hook's: to resolve it is answered [`Resolved::Conflict`].
    pub waits_for_hook: bool,
}

/// What became of a key.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Explanation {
    /// No run is remembered.
    NeverSeen,
    /// A run is going; or one has just ended without having begun, since its mark was in doubt, and holds its key for
    /// the rest of a lease.
    Running {
        /// How long.
        since: Duration,
        /// What is left of its lease. Zero: it has lapsed, and the next repeat takes over.
        expires_in: Duration,
        /// How long ago it gave its last sign of life.
        last_beat: Duration,
        /// The last progress it told.
        progress: u64,
        /// Whether it has passed its point of no return.
        marked: bool,
    },
    /// The work is done.
    Done {
        /// What a repeat is answered; `None` where it was not kept.
        response: Option<Response<Bytes>>,
        /// How long ago it was finished.
        finished: Duration,
        /// How long it is still kept.
        keep_left: Duration,
    },
    /// The work is done, and what is kept of its answer cannot be read, for this reason.
    Unreadable(String),
    /// Nobody knows.
    Unknown(UnknownOutcome),
}

impl IdempotencyLayer {
    /// The operator's side of this layer, over the layer's own store (or a copy of it for another connection).
    pub fn operator(&self, store: impl ClaimAdmin) -> Operator {
        Operator {
            shared: Arc::clone(self.shared()),
            store: Arc::new(store),
        }
    }
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
        let has_begun = self.store.dyn_peek(next).await?;
        let has_begun = has_begun.is_some_and(|next| next.state != State::Free);
        Ok((!has_begun).then(|| UnknownOutcome::waiting(&record, before)))
    }

    /// The record of the request with this head: its method, path, key header and what the layer's scope looks at.
    /// `None` where the layer would let it pass, refuse it, or need its body.
    pub fn key_of(&self, request: &Parts) -> Option<Key> {
        match self.shared.look_at(request, &Warned::default()) {
            Entry::Guard(Ticket::Keyed(guarded)) => Some(guarded.key),
            _ => None,
        }
    }

    /// What became of a key.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn explain(&self, key: Key) -> Result<Explanation, StoreError> {
        let mut key = key;
        let mut waits = None;
        for _ in 0..LONGEST_WAY {
            let record = self.store.dyn_peek(key).await?;
            let Some(record) = record.filter(|record| record.state != State::Free) else {
                return Ok(waits.map_or(Explanation::NeverSeen, Explanation::Unknown));
            };
            match record.state {
                State::Done => match self.shared.finished(key, record.token).await? {
                    Some(done) if is_withdrawn(&done) => {
                        return Ok(Explanation::Running {
                            since: record.since,
                            expires_in: done.keep_left,
                            last_beat: record.last_beat,
                            progress: record.progress,
                            marked: record.marked,
                        });
                    }
                    Some(done) => {
                        let Some(marker) = lead(&done) else {
                            return Ok(self.explain_done(key, &done));
                        };
                        waits = match marker {
                            Marker::Ask(before) => Some(UnknownOutcome::waiting(&record, before)),
                            Marker::Run => None,
                        };
                        key = marker.leads_to(key, done.token).key;
                    }
                    // It has ended meanwhile.
                    None => return Ok(Explanation::NeverSeen),
                },
                State::Held => {
                    return Ok(Explanation::Running {
                        since: record.since,
                        expires_in: record.expires_in,
                        last_beat: record.last_beat,
                        progress: record.progress,
                        marked: record.marked,
                    });
                }
                _ => {
                    let unknown = UnknownOutcome::of(&record);
                    return Ok(unknown.map_or(Explanation::NeverSeen, Explanation::Unknown));
                }
            }
        }
        Err(too_long(key))
    }

    fn explain_done(&self, key: Key, done: &DoneRecord) -> Explanation {
        let response = match &done.value {
            Value::Kept(bytes) => match self.shared.read_record(key, bytes) {
                Ok(kept) if kept.is_whole => {
                    let mut response = Response::new(kept.body);
                    *response.status_mut() = kept.status;
                    *response.headers_mut() = kept.headers;
                    Some(response)
                }
                Ok(_) => None,
                Err(why) => return Explanation::Unreadable(why.to_string()),
            },
            _ => None,
        };
        Explanation::Done {
            response,
            finished: done.finished,
            keep_left: done.keep_left,
        }
    }

    /// The work was done, and this is its answer: it is kept for the layer's retention, under the layer's rules for
    /// headers, redacted and sealed like any other, and replayed. [`Resolved::Conflict`] where the outcome is not the
    /// one that was seen any more.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn resolve_with(
        &self,
        outcome: &UnknownOutcome,
        response: Response<Bytes>,
    ) -> Result<Resolved, StoreError> {
        let (parts, body) = response.into_parts();
        let rules = &self.shared.headers;
        let now = self.shared.clock().unix_time();
        let first_seen = now.saturating_sub(outcome.since);
        let head = Head::new(parts.status, &parts.headers, rules, first_seen);
        let record = head.with_body([&body].into_iter(), None, rules);
        let (value, _) = self.shared.seal_up(outcome.key, record);
        self.resolve(outcome, Resolution::Done(value, self.shared.retention))
            .await
    }

    /// The work was done, and its answer is not known: repeats are told so (409 `response-not-kept`).
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn resolve_done(&self, outcome: &UnknownOutcome) -> Result<Resolved, StoreError> {
        let done = Resolution::Done(Value::Tombstone, self.shared.retention);
        self.resolve(outcome, done).await
    }

    /// Nothing happened: the next repeat runs, and no hook is asked before.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn run_again(&self, outcome: &UnknownOutcome) -> Result<Resolved, StoreError> {
        let free = if outcome.hook_asked {
            // Free, it would ask the hook that could not tell.
            let marker = Value::Kept(Marker::Run.to_bytes());
            Resolution::Done(marker, self.shared.marker_keep())
        } else {
            Resolution::Absent
        };
        self.resolve(outcome, free).await
    }

    async fn resolve(
        &self,
        outcome: &UnknownOutcome,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        self.store
            .dyn_resolve(outcome.key, outcome.token, resolution)
            .await
    }
}

fn is_ours(record: &RecordView) -> bool {
    [LABEL, RECONCILE_LABEL].contains(&&*record.label)
}

impl UnknownOutcome {
    fn of(record: &RecordView) -> Option<Self> {
        (record.state == State::Unknown).then(|| Self {
            key: record.key,
            token: record.token,
            since: record.since,
            forgotten_in: record.expires_in,
            last_beat: record.last_beat,
            progress: record.progress,
            marked: record.marked,
            hook_asked: &*record.label == RECONCILE_LABEL,
            waits_for_hook: false,
        })
    }

    /// Of a record that leads to where the hook is asked.
    fn waiting(record: &RecordView, before: Before) -> Self {
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

/// In one line, for people.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverSeen => f.write_str("never seen, or forgotten: a request would run"),
            Self::Running {
                since,
                expires_in,
                last_beat,
                progress,
                marked,
            } => {
                let past = if *marked { "past" } else { "before" };
                write!(
                    f,
                    "running for {since:?}, {past} its point of no return; last sign of life {last_beat:?} ago, progress \
                     {progress}; its lease ends in {expires_in:?}"
                )
            }
            Self::Done {
                response,
                finished,
                keep_left,
            } => {
                write!(f, "done {finished:?} ago")?;
                match response {
                    Some(response) => write!(f, " with {}", response.status())?,
                    None => f.write_str(", its response was not kept")?,
                }
                write!(f, "; forgotten in {keep_left:?}")
            }
            Self::Unreadable(why) => write!(f, "done, but {why}"),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
