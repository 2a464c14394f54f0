//! A row that is there already: the database refused another by a unique index, and a hook of the user's knows what
//! that means. The last backstop behind the claim, for where a request comes under two keys, or a run before this one
//! died between its row and its record.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Response;
use http::request;
use http::response::Parts;
use tower_claim::transaction::UniqueViolation;

use crate::keep::{at_the_end, by_head, refuses};
use crate::made::MadeAnswer;
use crate::open::OpenRun;
use crate::outcome::{NoEffect, Outcome};
use crate::reconcile::keep_made;
use crate::reply::Reply;
use crate::run::IdempotentRun;
use crate::shared::Shared;
use crate::shown;

/// A run whose row was refused, because another is there already.
pub struct ExistingRow {
    violation: UniqueViolation,
    run: IdempotentRun,
    asked: Asked,
}

impl ExistingRow {
    /// What the database said: the constraint's name, perhaps the table's.
    pub fn violation(&self) -> &UniqueViolation {
        &self.violation
    }

    /// The run, which holds its key yet unless its claim was [inside](crate::IdempotencyBuilder::claim_inside) the
    /// transaction.
    pub fn run(&self) -> &IdempotentRun {
        &self.run
    }

    /// The head of the request.
    pub fn request(&self) -> &request::Parts {
        &self.asked.parts
    }

    /// Its body; `None` where uploads [are streamed](crate::IdempotencyBuilder::stream_uploads).
    pub fn body(&self) -> Option<&Bytes> {
        self.asked.body.as_ref()
    }
}

impl fmt::Debug for ExistingRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExistingRow")
            .field("violation", &self.violation)
            .field("run", &self.run)
            .field("request", &shown::Asked(&self.asked.parts))
            .finish_non_exhaustive()
    }
}

/// The request, for a hook.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) parts: request::Parts,
    body: Option<Bytes>,
}

impl Asked {
    /// What a hook may want to see of a request, if there is one that may be asked about it.
    pub(crate) fn of(
        shared: &Shared,
        parts: &request::Parts,
        body: impl Fn() -> Option<Bytes>,
    ) -> Option<Self> {
        let wanted = !shared.existing.hooks.is_empty() || shared.on_not_kept.is_some();
        wanted.then(|| Self {
            parts: parts.clone(),
            body: body(),
        })
    }
}

type Hook = Arc<dyn Fn(ExistingRow) -> BoxFuture<'static, Option<Response<Bytes>>> + Send + Sync>;

type ReadViolation = Arc<dyn Fn(&Parts) -> Option<UniqueViolation> + Send + Sync>;

/// The hooks by the names of their constraints.
#[derive(Clone, Default)]
pub(crate) struct ExistingRows {
    hooks: HashMap<String, Hook>,
    /// Reads a violation out of an answer that does not tell of it by an extension.
    read: Option<ReadViolation>,
    /// One that has two: which of them is meant, nobody knows.
    twice: Option<String>,
}

impl ExistingRows {
    pub(crate) fn add<F>(
        &mut self,
        constraint: String,
        hook: impl Fn(ExistingRow) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Option<Response<Bytes>>> + Send + 'static,
    {
        let hook: Hook = Arc::new(move |row| Box::pin(hook(row)));
        match self.hooks.entry(constraint) {
            Entry::Vacant(place) => {
                place.insert(hook);
            }
            Entry::Occupied(place) => self.twice = Some(place.key().clone()),
        }
    }

    /// The constraint that has two hooks.
    pub(crate) fn twice(&self) -> Option<&str> {
        self.twice.as_deref()
    }

    pub(crate) fn read_by(
        &mut self,
        read: impl Fn(&Parts) -> Option<UniqueViolation> + Send + Sync + 'static,
    ) {
        self.read = Some(Arc::new(read));
    }

    /// Whether answers are read for violations that no hook knows of.
    pub(crate) fn reads_in_vain(&self) -> bool {
        self.read.is_some() && self.hooks.is_empty()
    }

    /// What the database said, by this answer.
    fn violation(&self, said: &Parts) -> Option<UniqueViolation> {
        if let Some(violation) = said.extensions.get() {
            return Some(UniqueViolation::clone(violation));
        }
        let read = self.read.as_ref()?;
        // A panic here, behind the work, must not free the key.
        catch_unwind(AssertUnwindSafe(|| read(said))).ok()?
    }

    /// For how many constraints there are hooks.
    pub(crate) fn count(&self) -> usize {
        self.hooks.len()
    }
}

impl fmt::Debug for ExistingRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.hooks.keys()).finish()
    }
}

/// What events call the hooks.
const HOOK: &str = "on_unique_violation";

/// What a hook made.
pub(crate) enum Made {
    /// An outcome, or what is told instead of it.
    Kept(Reply),
    /// No outcome, by the layer's rules.
    NotKept(MadeAnswer),
}

/// The answer in the place of a handler's that failed by a unique index; `None` where the handler's own counts. What
/// it wrote is rolled back first: the row is there to be seen then, and no connection is held.
///
/// A handler that recovered from the violation (by a savepoint, say) and answers that its work is done has rows to be
/// committed: nobody is asked then, whatever it says of the violation.
pub(crate) async fn answer(open: &OpenRun, said: &Parts) -> Option<Made> {
    let existing = &open.shared.existing;
    if existing.hooks.is_empty() || !refuses(said) || said.extensions.get::<NoEffect>().is_some() {
        return None;
    }
    let violation = existing.violation(said)?;
    let hook = existing.hooks.get(violation.constraint())?;
    let asked = open.asked.clone()?;
    if open.roll_back().await.is_err() {
        // The run has no outcome then, whatever the hook would say.
        return None;
    }
    let row = ExistingRow {
        violation,
        run: open.run.clone(),
        asked,
    };
    let meter = &open.shared.counters.meter;
    meter.hook_asked(open.name(), HOOK);
    // The call itself may panic, too.
    let asked = AssertUnwindSafe(async move { hook(row).await }).catch_unwind();
    let answered = tokio::select! {
        biased;
        answered = asked => answered,
        _ = async { open.run.lost().await } => return None,
    };
    let response = match answered {
        Ok(answered) => {
            let said = if answered.is_some() { "answer" } else { "none" };
            meter.hook_answered(open.name(), HOOK, said);
            answered?
        }
        Err(_panic) => {
            let counters = &open.shared.counters;
            counters.panics.add_of(open.name());
            counters.meter.hook_panicked(Some(open.name()), HOOK);
            return None;
        }
    };
    let made = MadeAnswer::of(response, open.responder.is_grpc());
    let verdict = by_head(open, &made.head);
    if at_the_end(verdict, open, made.trailers.as_ref()) == Outcome::Release {
        // The hook could not tell, and says so in words of its own: who repeats the request asks again.
        open.release().await;
        return Some(Made::NotKept(made));
    }
    Some(Made::Kept(match keep_made(open, made).await {
        Ok(kept) => {
            open.shared.counters.existing.add_of(open.name());
            Reply::Existing(kept)
        }
        Err(instead) => instead,
    }))
}
