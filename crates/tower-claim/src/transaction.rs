//! The user's transaction: lent to a handler, ended by the layer around it.
//!
//! The end of a claim belongs into the transaction that does the work: then rows and result are committed
//! together, or neither is. But the result is the handler's *answer*, which exists when the handler is done,
//! and only the layer around it can put it in. So the layer lays out a [`TransactionSlot`], an engine's crate
//! lends the handler a transaction by it, and when the handler has answered the layer takes it back and
//! [ends](OpenTransaction::commit_with) it. The handler writes, and answers; it neither finishes nor commits:
//!
//! | The handler | and the transaction | the next request with the key |
//! |---|---|---|
//! | answers below 400 | is committed, with the answer in it, before the first byte leaves | is replayed the answer |
//! | answers a 4xx that is kept | is rolled back; the answer is kept | is replayed the answer |
//! | answers what is not kept (5xx), fails, panics | is rolled back | runs |
//! | was taken over by another run | is rolled back | gets the other run's answer, as this caller does |
//! | dies at any point | is rolled back by the server | runs, after one lease; or, died after the commit: is replayed the answer |
//!
//! Where the answer to the commit is missing, the layer asks the record before it answers. Past the point of no
//! return a commit that fails leaves the outcome unknown: there is more than rows then.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::OwnedMutexGuard;

use crate::store::FinishRequest;
use crate::{Code, Refusal, StoreError};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A transaction that is open. Implemented by engines' crates; dropped, it is rolled back.
pub trait OpenTransaction: Send + 'static {
    /// Ends the claim inside the transaction, and commits that.
    ///
    /// # Errors
    ///
    /// [`CommitError`], which says what became of the transaction.
    ///
    /// # Cancellation
    ///
    /// After a drop the transaction is committed or not: that is in doubt.
    fn commit_with(
        self: Box<Self>,
        finish: FinishRequest,
    ) -> BoxFuture<'static, Result<(), CommitError>>;

    /// Rolls back: when this has answered, nothing of the transaction will be seen by anybody.
    fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// Why a transaction was not committed, or may not have been.
#[derive(Debug)]
#[non_exhaustive]
pub enum CommitError {
    /// Another owner has the claim. Rolled back.
    Lost,
    /// The database refused. Rolled back.
    RolledBack(BoxError),
    /// The answer to the commit is missing.
    InDoubt(BoxError),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "another owner has the claim: rolled back",
            Self::RolledBack(_) => "the transaction was rolled back",
            Self::InDoubt(_) => "the answer to the commit is missing",
        })
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost => None,
            Self::RolledBack(error) | Self::InDoubt(error) => Some(&**error),
        }
    }
}

/// Where a layer finds the transaction that its handler worked in. In the request's extensions, where a layer
/// ends transactions. Clones are one slot.
///
/// One transaction for each run: a second one is refused, since only one can carry the result.
#[derive(Clone, Default)]
pub struct TransactionSlot(Arc<Mutex<Place>>);

#[derive(Default)]
enum Place {
    #[default]
    Empty,
    Lent(Box<dyn Loan>),
    /// The run is over.
    Closed,
}

/// A transaction in the hands of a handler: use it as the transaction, and drop it when the work is written, or
/// with the handler.
pub type Lent<T> = OwnedMutexGuard<T>;

impl TransactionSlot {
    /// An empty slot.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether [`lend`](Self::lend) would lend.
    ///
    /// # Errors
    ///
    /// [`NotLent`].
    pub fn is_free(&self) -> Result<(), NotLent> {
        match *self.lock() {
            Place::Empty => Ok(()),
            Place::Lent(_) => Err(NotLent::Second),
            Place::Closed => Err(NotLent::Over),
        }
    }

    /// Lends a transaction to the handler.
    ///
    /// # Errors
    ///
    /// [`NotLent`]. The transaction is dropped, and so rolled back.
    pub fn lend<T: OpenTransaction>(&self, transaction: T) -> Result<Lent<T>, NotLent> {
        self.is_free()?;
        let whole = Arc::new(tokio::sync::Mutex::new(transaction));
        // Nobody else has it yet.
        let lent = Arc::clone(&whole).try_lock_owned();
        let lent = lent.map_err(|_| NotLent::Second)?;
        let mut place = self.lock();
        match *place {
            Place::Empty => *place = Place::Lent(Box::new(whole)),
            Place::Lent(_) => return Err(NotLent::Second),
            Place::Closed => return Err(NotLent::Over),
        }
        Ok(lent)
    }

    /// What the handler worked in, when it is done. The run is over with this: what is given back later is
    /// rolled back.
    ///
    /// # Errors
    ///
    /// [`StillLent`]: the handler has answered, and something it left behind has the transaction yet.
    pub fn take(&self) -> Result<Option<Box<dyn OpenTransaction>>, StillLent> {
        let place = std::mem::replace(&mut *self.lock(), Place::Closed);
        match place {
            Place::Empty | Place::Closed => Ok(None),
            Place::Lent(loan) => loan.back().map(Some).ok_or(StillLent),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TransactionSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self.lock() {
            Place::Empty => "TransactionSlot(empty)",
            Place::Lent(_) => "TransactionSlot(lent)",
            Place::Closed => "TransactionSlot(closed)",
        })
    }
}

/// The slot's end of what was lent.
trait Loan: Send {
    /// `None` while the other end has it.
    fn back(self: Box<Self>) -> Option<Box<dyn OpenTransaction>>;
}

impl<T: OpenTransaction> Loan for Arc<tokio::sync::Mutex<T>> {
    fn back(self: Box<Self>) -> Option<Box<dyn OpenTransaction>> {
        Some(Box::new(Arc::into_inner(*self)?.into_inner()))
    }
}

/// Why a slot does not lend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLent {
    /// This run has a transaction.
    Second,
    /// This run is over.
    Over,
}

impl fmt::Display for NotLent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "this run has a transaction already: hand on the one it has",
            Self::Over => "this run is over: take the transaction before the handler answers",
        })
    }
}

impl std::error::Error for NotLent {}

/// A handler has answered, and something it left behind has its transaction yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StillLent;

impl fmt::Display for StillLent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the handler answered and kept its transaction: drop it, or end what has it, before",
        )
    }
}

impl std::error::Error for StillLent {}

/// Why a handler got no transaction.
#[derive(Debug)]
#[non_exhaustive]
pub enum BeginError {
    /// No layer runs this request under a key: the request has none, or the application is wired wrongly.
    NoRun,
    /// The run has a transaction already, or is over.
    NotLent(NotLent),
    /// The database did not begin one.
    Store(StoreError),
}

impl BeginError {
    /// What the caller is told: `key-missing`, or `store-unavailable`, after which a repeat runs. A handler
    /// that asks twice is a mistake of the program, and told as if it had panicked.
    pub fn to_refusal(&self) -> Refusal {
        let code = match self {
            Self::NoRun => Code::KeyMissing,
            Self::NotLent(_) => Code::HandlerPanicked,
            Self::Store(_) => Code::StoreUnavailable,
        };
        Refusal::new(code).with_detail(self.to_string())
    }
}

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRun => f.write_str(
                "this handler runs with a business key only; if the request has one, put IdempotencyLayer around \
                 the handler's route",
            ),
            Self::NotLent(why) => why.fmt(f),
            Self::Store(_) => f.write_str("the database began no transaction"),
        }
    }
}

impl std::error::Error for BeginError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::NoRun | Self::NotLent(_) => None,
        }
    }
}

impl From<NotLent> for BeginError {
    fn from(why: NotLent) -> Self {
        Self::NotLent(why)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Rows(Arc<AtomicU32>);

    impl OpenTransaction for Rows {
        fn commit_with(
            self: Box<Self>,
            _: FinishRequest,
        ) -> BoxFuture<'static, Result<(), CommitError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    impl Drop for Rows {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_the_handler_drops_comes_back() {
        let (slot, dropped) = (TransactionSlot::new(), Arc::default());
        let lent = slot.lend(Rows(Arc::clone(&dropped))).unwrap();
        drop(lent);
        assert_eq!(dropped.load(Ordering::Relaxed), 0, "it is open yet");
        assert!(slot.take().unwrap().is_some());
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert!(slot.take().unwrap().is_none(), "it is taken once");
    }

    #[test]
    fn one_that_is_kept_is_told_of_and_rolled_back_in_the_end() {
        let (slot, dropped) = (TransactionSlot::new(), Arc::default());
        let lent = slot.lend(Rows(Arc::clone(&dropped))).unwrap();
        assert_eq!(slot.take().err(), Some(StillLent));
        drop(lent);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert!(slot.take().unwrap().is_none());
    }

    #[test]
    fn a_run_has_one_transaction_and_none_when_it_is_over() {
        let slot = TransactionSlot::new();
        let lent = slot.lend(Rows::default()).unwrap();
        assert_eq!(slot.lend(Rows::default()).err(), Some(NotLent::Second));
        drop(lent);
        assert_eq!(slot.lend(Rows::default()).err(), Some(NotLent::Second));
        let _ = slot.take();
        assert_eq!(slot.lend(Rows::default()).err(), Some(NotLent::Over));
    }
}
