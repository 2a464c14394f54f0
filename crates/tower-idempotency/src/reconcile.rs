//! Asking what a lapsed run came to, before anything runs again.
//!
//! A record whose outcome is unknown can be claimed by nobody. So the work goes on under a key of its own: the
//! unknown record is resolved, by its token, to a [marker](Marker) that leads there; one of all who try it succeeds, and
//! the token it raises shuts the lapsed owner out. Under the next key every run begins with the hook. It can lapse, be
//! given back or be dropped by a caller that hangs up, as any claim: whoever comes next asks the hook again.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Response;
use http::request::Parts;
use tower_claim::store::{Resolution, Value};
use tower_claim::{Code, DynClaimAdmin, Refusal, StoreError, Terms, Token};

use crate::made::MadeAnswer;
use crate::open::OpenRun;
use crate::record::{Before, KeptResponse, Marker};
use crate::reply::Reply;
use crate::run::IdempotentRun;
use crate::shown;
use crate::way::Way;

/// What a lapsed run came to, as a [reconcile hook](crate::IdempotencyBuilder::reconcile) found out.
#[non_exhaustive]
pub enum Reconciled {
    /// Nothing happened, and nothing will: the handler runs.
    RunAgain,
    /// The work was done: this is its answer, to be kept and replayed. Of a gRPC call: its message as it is sent (five
    /// bytes before it), or nothing, and `grpc-status` in the head; behind a message it is sent as a trailer.
    Done(Response<Bytes>),
    /// Nobody can tell. The outcome stays unknown until an [`Operator`](crate::Operator) resolves it, or its unfinished
    /// keep has passed; the hook is not asked again.
    Unknown,
    /// It cannot be told now (the other side does not answer): the next repeat asks again. The caller is told to come
    /// again after this time.
    NotYet(Duration),
}

impl Reconciled {
    /// As events tell it.
    const fn as_str(&self) -> &'static str {
        match self {
            Self::RunAgain => "run-again",
            Self::Done(_) => "done",
            Self::Unknown => "unknown",
            Self::NotYet(_) => "not-yet",
        }
    }
}

impl fmt::Debug for Reconciled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunAgain => f.write_str("RunAgain"),
            Self::Done(answer) => f.debug_tuple("Done").field(&shown::Answer(answer)).finish(),
            Self::Unknown => f.write_str("Unknown"),
            Self::NotYet(pause) => f.debug_tuple("NotYet").field(pause).finish(),
        }
    }
}

/// A request whose last run lapsed, or was lost behind its point of no return.
pub struct LapsedRun {
    pub(crate) run: IdempotentRun,
    pub(crate) parts: Parts,
    pub(crate) body: Option<Bytes>,
    pub(crate) before: Before,
}

impl LapsedRun {
    /// The run that asks. It holds the work under a [token](IdempotentRun::token) above that of the lapsed one: raise
    /// your resource's high-water mark to it *before* you look, and the lapsed run can change nothing afterwards.
    pub fn run(&self) -> &IdempotentRun {
        &self.run
    }

    /// The head of the repeat. Its payload is that of the lapsed run.
    pub fn request(&self) -> &Parts {
        &self.parts
    }

    /// Its body; `None` where uploads [are streamed](crate::IdempotencyBuilder::stream_uploads).
    pub fn body(&self) -> Option<&Bytes> {
        self.body.as_ref()
    }

    /// Whether the lapsed run had passed its point of no return. Where not, and where every effect of your handler
    /// lies behind that point, nothing happened.
    pub fn was_past_return(&self) -> bool {
        self.before.was_marked
    }

    /// The last [progress](IdempotentRun::progress) it told.
    pub fn progress(&self) -> u64 {
        self.before.progress
    }
}

impl fmt::Debug for LapsedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LapsedRun")
            .field("run", &self.run)
            .field("request", &shown::Asked(&self.parts))
            .field("before", &self.before)
            .finish_non_exhaustive()
    }
}

/// What events call the hook.
const HOOK: &str = "reconcile";

type Hook = Arc<dyn Fn(LapsedRun) -> BoxFuture<'static, Reconciled> + Send + Sync>;

/// The hook as the user gave it.
#[derive(Clone)]
pub(crate) struct ReconcileBy {
    pub(crate) store: Arc<dyn DynClaimAdmin>,
    pub(crate) hook: Hook,
}

impl ReconcileBy {
    pub(crate) fn new<F>(
        store: Arc<dyn DynClaimAdmin>,
        hook: impl Fn(LapsedRun) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Reconciled> + Send + 'static,
    {
        Self {
            store,
            hook: Arc::new(move |lapsed| Box::pin(hook(lapsed))),
        }
    }
}

/// How lapsed runs are reconciled.
pub(crate) struct Reconcile {
    pub(crate) by: ReconcileBy,
    /// Of the claims that ask first: a lapse of theirs may be taken over.
    pub(crate) terms: Terms,
}

impl Reconcile {
    /// Leads on from a record whose outcome is unknown, for so long, unless somebody else has meanwhile. `now` since the
    /// Unix epoch.
    pub(crate) async fn lead_on(
        &self,
        way: &Way,
        unknown: Token,
        keep: Duration,
        now: Duration,
    ) -> Result<(), StoreError> {
        let key = way.key;
        let seen = self.by.store.dyn_peek(key).await?;
        let before = seen.filter(|record| record.token == unknown);
        let marker = Marker::Ask(before.map_or_else(Before::default, |record| Before {
            was_marked: record.marked,
            progress: record.progress,
            // What is unknown does not say when it began, but when it was heard of last.
            first_seen: way.first_seen.or_else(|| {
                let heard = record.since.max(record.last_beat);
                Some(now.saturating_sub(heard))
            }),
        }));
        let lead = Resolution::Done(Value::Kept(marker.to_bytes()), keep);
        self.by.store.dyn_resolve(key, unknown, lead).await?;
        Ok(())
    }
}

impl fmt::Debug for Reconcile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconcile").finish_non_exhaustive()
    }
}

/// Asks the hook, under the claim of this run. `None`: the handler is to run.
pub(crate) async fn ask(open: &OpenRun, lapsed: LapsedRun) -> Option<Reply> {
    let reconcile = open.shared.reconcile.as_ref()?;
    let hook = &reconcile.by.hook;
    let meter = &open.shared.counters.meter;
    meter.hook_asked(open.name(), HOOK);
    // The call itself may panic, too.
    let asked = AssertUnwindSafe(async move { hook(lapsed).await }).catch_unwind();
    let asked = tokio::select! {
        biased;
        asked = asked => asked,
        _ = async { open.run.lost().await } => return Some(too_late(open).await),
    };
    if let Ok(verdict) = &asked {
        meter.hook_answered(open.name(), HOOK, verdict.as_str());
    }
    match asked {
        // The claim may have ended between two looks at the clock: a paused process wakes up right here.
        Ok(Reconciled::RunAgain) if open.run.check().is_err() => Some(too_late(open).await),
        Ok(Reconciled::RunAgain) => None,
        Ok(Reconciled::Done(response)) => Some(done(open, response).await),
        Ok(Reconciled::Unknown) => {
            open.give_up().await;
            Some(open.shared.unknown())
        }
        Ok(Reconciled::NotYet(pause)) => Some(not_yet(open, pause).await),
        Err(_panic) => {
            open.shared.counters.panics.add_of(open.name());
            meter.hook_panicked(Some(open.name()), HOOK);
            Some(not_yet(open, open.shared.terms.lease()).await)
        }
    }
}

async fn done(open: &OpenRun, response: Response<Bytes>) -> Reply {
    let made = MadeAnswer::of(response, open.responder.is_grpc());
    match keep_made(open, made).await {
        Ok(kept) => {
            open.shared.counters.reconciled.add_of(open.name());
            Reply::Reconciled(kept)
        }
        Err(instead) => instead,
    }
}

/// Keeps an answer that a hook of the user's has made; as its caller is told it, or what is told instead. The caller
/// is who it was made for: it hears what a repeat will, and beside that what is redacted before it is kept.
pub(crate) async fn keep_made(open: &OpenRun, made: MadeAnswer) -> Result<KeptResponse, Reply> {
    let record = open.shared.record_of(&made, open.first_seen);
    let settled = open.finish(record).await;
    match open.instead(settled).await {
        Some(instead) => Err(instead),
        None => Ok(made
            .selected(&open.shared.headers)
            .into_kept(Some(open.first_seen))),
    }
}

/// Given back, the key is free: whoever comes next asks first, too.
async fn not_yet(open: &OpenRun, pause: Duration) -> Reply {
    open.release().await;
    told_not_yet(open, pause)
}

/// The claim has ended under the hook: another may have asked again, and run. What the hook says now lets nothing run.
async fn too_late(open: &OpenRun) -> Reply {
    open.release().await;
    match open.shared.taken(open.key).await {
        Ok(false) => told_not_yet(open, open.shared.terms.lease()),
        Ok(true) | Err(_) => open.after_loss().await,
    }
}

fn told_not_yet(open: &OpenRun, pause: Duration) -> Reply {
    open.shared.counters.outcome_unknown.add();
    Refusal::new(Code::OutcomeUnknown)
        .with_reason("not-yet-known")
        .with_retry_after(pause)
        .into()
}
