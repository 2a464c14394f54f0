//! The operator's side: which records there are, which outcomes are unknown, what became of a key, and what is to
//! become of it.

mod explain;
mod instead;
mod list;
mod purge;
mod resolve;
mod unknown;

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tower_claim::store::{RecordView, State};
use tower_claim::{ClaimAdmin, DynClaimAdmin, Key, Token};

use crate::entry::{Entry, Ticket};
use crate::layer::{IdempotencyLayer, LABEL, RECONCILE_LABEL};
use crate::shared::Shared;
use crate::weak::Warned;

pub use explain::Explanation;
pub use list::{ListedRecord, ListedState, RecordPage};
pub use unknown::{UnknownOutcome, UnknownPage};

/// How many records of a page are read at once.
const READS: usize = 16;

/// Lists records and unknown outcomes, explains keys, resolves what nobody knows, and purges answers: made by
/// [`IdempotencyLayer::operator`]. For a page or a command of your own; it serves nothing by itself.
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

/// A record as an operator saw it: whoever acts on it says so, so that nothing newer is acted on unseen. From
/// [`Operator::list`] or [`Operator::explain`], or from a page that showed what they told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeenRecord {
    /// Its key. That of an answer is not always that of its request: behind a lost run the work goes on under another.
    pub key: Key,
    /// Its token.
    pub token: Token,
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
    /// The record of the request with this head: its method, path, key header and what the layer's scope looks at.
    /// `None` where the layer would let it pass, refuse it, or need its body.
    pub fn key_of(&self, request: &Parts) -> Option<Key> {
        match self.shared.look_at(request, &Warned::default()) {
            Entry::Guard(Ticket::Keyed(guarded)) => Some(guarded.key),
            _ => None,
        }
    }
}

fn is_ours(record: &RecordView) -> bool {
    [LABEL, RECONCILE_LABEL].contains(&&*record.label)
}

/// Whether its claim was to ask a reconcile hook first.
fn is_behind_hook(record: &RecordView) -> bool {
    &*record.label == RECONCILE_LABEL
}

/// Whether the next repeat would ask the hook under a key with this record: nobody is at it, and nobody has said anything
/// for good. The token of the last who was, zero where none is known.
fn waits_for_hook(next: Option<&RecordView>) -> Option<Token> {
    match next {
        None => Some(Token::ZERO),
        Some(next) if next.state == State::Free || next.lapsed && next.state == State::Held => {
            Some(next.token)
        }
        Some(_) => None,
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
