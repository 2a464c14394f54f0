//! The owner's side of the claim protocol: claim a key, keep it alive while the work moves, know when it
//! is lost, finish or release it.

mod acquire;
mod builder;
mod circuit;
mod claim;
mod cleanup;
mod desk;
mod doubt;
mod ends;
mod finishing;
mod hold;
mod loss;
mod state;
mod terms;
mod timing;
mod told;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{Clock, DynClaimMany, DynClaimStore, Entropy, Fingerprint, Key, StoreError, Token};

pub use acquire::{Attempt, AttemptMany};
pub use builder::{KeeperBuilder, RunOn};
pub use claim::Claim;
pub use ends::{HandBack, NoPointOfNoReturn};
pub use finishing::{Finishing, Settled};
pub use loss::Loss;
pub use terms::{Renewal, Terms, TermsBuilder};

use circuit::Circuit;
use desk::Desk;
pub(crate) use timing::Timing;

/// Claims keys on a store and keeps the holds alive. One per layer value; clones share everything.
///
/// Holds are renewed by one worker, many in one store call, at a third of their lease ± 15 %. It runs on
/// a thread and runtime of its own, over its own connections
/// ([`keeper_store`](crate::ClaimStore::keeper_store)), so that a blocked application runtime does not
/// cost the lease; it starts with the first claim, and ends when the last keeper and claim are gone. The
/// same worker releases what was dropped and repeats what stayed in doubt. A store that hangs or panics
/// costs the call, which is tried again; the deadline of every hold is kept by clock, without the worker.
///
/// What it promises its owner, with bounded clock *rates*: while [`Claim::check`] is `Ok`, no other owner
/// believes that it holds the key. What it does not: stop a paused process from writing. For that, send
/// [`Claim::token`] along and let the resource compare it ([`FenceStore`](crate::FenceStore)).
///
/// ```no_run
/// # async fn example(store: impl tower_claim::ClaimStore) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tower_claim::{Attempt, Keeper, Key, Namespace, Terms, Token, Use};
///
/// let keeper = Keeper::new(store);
/// let terms = Terms::builder(Duration::from_secs(10)).build()?;
/// let key = Key::builder(Use::Lease, &Namespace::default()).part("account 42").build();
///
/// match keeper.claim(key, None, &terms, Token::ZERO).await? {
///     Attempt::Granted(claim) => {
///         claim.check()?; // still ours?
///         claim.release().await?;
///     }
///     Attempt::Busy(busy) => println!("held, for {:?} more at least", busy.expires_in),
///     other => println!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Keeper {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn DynClaimStore>,
    many: Option<Arc<dyn DynClaimMany>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    desk: Arc<Desk>,
    circuit: Option<Circuit>,
    runs_on: Place,
    /// Held while a worker is started.
    starting: Mutex<()>,
}

/// Where the worker runs.
#[derive(Debug)]
enum Place {
    Thread,
    Task(tokio::runtime::Handle),
}

impl Inner {
    /// Makes sure that a worker runs, before anything is sent that it may have to clean up: a `Drop` must
    /// not start one.
    fn staff(&self) -> Result<(), StoreError> {
        if self.desk.is_staffed() {
            return Ok(());
        }
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.desk.is_staffed() {
            return Ok(());
        }
        let (desk, store) = (Arc::clone(&self.desk), Arc::clone(&self.store));
        match &self.runs_on {
            Place::Thread => worker::start_thread(desk, store),
            Place::Task(on) => {
                worker::start_task(desk, store, on);
                Ok(())
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.desk.close();
    }
}

impl Keeper {
    /// A keeper with the machine's clock and randomness, on a thread of its own.
    pub fn new(store: impl crate::ClaimStore) -> Self {
        KeeperBuilder::new(Arc::new(store), None).assemble(Place::Thread)
    }

    /// Starts a keeper with settings.
    pub fn builder(store: impl crate::ClaimStore) -> KeeperBuilder {
        KeeperBuilder::new(Arc::new(store), None)
    }

    /// Starts a keeper that can also claim several keys at once.
    pub fn builder_many(store: impl crate::ClaimMany) -> KeeperBuilder {
        let store = Arc::new(store);
        KeeperBuilder::new(Arc::clone(&store) as Arc<dyn DynClaimStore>, Some(store))
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn DynClaimStore> {
        &self.inner.store
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// Claims one key, under a nonce drawn for this call.
    ///
    /// `floor`: the token must be above it; [`Token::ZERO`] asks for nothing. What a repeated, late or
    /// lost answer means is dealt with inside; at most three nonces are tried, each sent at most three
    /// times.
    ///
    /// # Errors
    ///
    /// The store's, after the tries above. [`StoreError::Ambiguous`]: the keeper sees to it that the key
    /// does not stay taken.
    ///
    /// # Cancellation
    ///
    /// Dropped before anything was sent, nothing happened. Dropped later, the keeper releases by nonce
    /// what was or still may be granted: at once, and again when the copy under way can change nothing
    /// any more. (A takeover may be left to lapse instead: [`Terms::lapse_unheard_takeovers`].) A claim that was granted and not handed over does not outlive the future.
    pub async fn claim(
        &self,
        key: Key,
        fingerprint: Option<Fingerprint>,
        terms: &Terms,
        floor: Token,
    ) -> Result<Attempt, StoreError> {
        acquire::one(&self.inner, key, fingerprint, terms, floor).await
    }

    /// Claims several keys, all or nothing in one step. They are sorted and freed of repeats here; one
    /// nonce and one token stand for all. Such a claim is released, never finished.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim). [`StoreError::Unsupported`] for no keys at all, and for a keeper that
    /// was not made by [`builder_many`](Self::builder_many).
    ///
    /// # Cancellation
    ///
    /// As [`claim`](Self::claim).
    pub async fn claim_many(
        &self,
        keys: &[Key],
        terms: &Terms,
        floor: Token,
    ) -> Result<AttemptMany, StoreError> {
        acquire::many(&self.inner, keys, terms, floor).await
    }

    /// Heals a claim whose token a guard refused: releases it, and claims the same key again under a new
    /// nonce, with a token above `floor`, which is the guard's high-water mark.
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim). [`StoreError::Unsupported`] for a claim over several keys, one past its
    /// point of no return, and one of which another clone lives (the claim then ends with that clone).
    ///
    /// # Cancellation
    ///
    /// The claim is released, and nothing is claimed.
    pub async fn heal(&self, claim: Claim, floor: Token) -> Result<Attempt, StoreError> {
        let (key, fingerprint, terms) = claim.to_claim_again()?;
        match claim.release().await? {
            HandBack::HeldByClone => Err(StoreError::Unsupported(
                "healing a claim of which a clone lives",
            )),
            HandBack::Answered(_) | HandBack::Nothing => {
                self.claim(key, fingerprint, &terms, floor).await
            }
        }
    }

    /// Waits until every release and finish left to the keeper is over: call it before the process ends.
    /// `false` when `timeout` passes first. New ones may come meanwhile: drop the claims before.
    ///
    /// # Cancellation
    ///
    /// Nothing is lost: the keeper goes on.
    pub async fn drain(&self, timeout: Duration) -> bool {
        let until = self.inner.clock.now() + timeout;
        crate::wait::within(&*self.inner.clock, until, self.inner.desk.idle())
            .await
            .is_some()
    }
}
