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
//! | ends the transaction itself | is as the handler left it; the answer is not kept, and told as a panic (500) | runs, after one lease |
//! | dies at any point | is rolled back by the server | runs, after one lease; or, died after the commit: is replayed the answer |
//!
//! A gRPC answer is below 400 where its status is OK. That comes behind its messages: where they are over the limit
//! for kept responses, or outlast the claim, the work is committed before it is seen.
//!
//! Where a layer claims [inside](BeginWithClaim) the transaction as well, the claim is its first statement: nothing
//! of it is seen outside before the commit, no lease runs, and a crash leaves nothing at all. The handler is the
//! same.
//!
//! Where the layer is switched off, only observes, or goes on without its store, there is no claim, and the handler is the
//! same yet: its transaction is [committed](OpenTransaction::commit) where it answers below 400, and rolled back
//! otherwise. A repeat runs again. A request without a key has no transaction of the layer's in any case, since nobody
//! would end it ([`BeginError::NoRun`]): ask for a key (`require_key`), or take an `Option` of the transaction.
//!
//! Where the answer to the commit is missing, the layer asks the record before it answers. Past the point of no
//! return a commit that fails leaves the outcome unknown: there is more than rows then.

mod conflict;
mod refused;
mod slot;

use std::fmt;

use futures_util::future::BoxFuture;

use crate::StoreError;
use crate::store::{ClaimRequest, Claimed, FinishRequest};

pub use conflict::{Conflict, UniqueViolation};
pub use refused::{BeginError, NotLent, StillLent};
pub use slot::{Lent, TransactionSlot};

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

    /// Commits it alone: the run had no claim that could be ended, since its layer is switched off, or only looks on.
    ///
    /// # Errors
    ///
    /// As of [`commit_with`](Self::commit_with); also where a statement of the handler's failed, and it went on.
    ///
    /// # Cancellation
    ///
    /// As of [`commit_with`](Self::commit_with).
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), CommitError>>;

    /// Rolls back: when this has answered, nothing of the transaction will be seen by anybody.
    fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// Begins transactions that claim a key by their first statement: claim, work and result are committed together,
/// or none of them is. Implemented by engines' crates.
pub trait BeginWithClaim: Send + Sync + 'static {
    /// The engine whose records these transactions write, as its store's
    /// [`Capabilities`](crate::store::Capabilities::engine) name it: a layer over another store refuses to build. Default:
    /// `None`, it cannot be told.
    fn engine(&self) -> Option<&'static str> {
        None
    }

    /// Begins a transaction and claims the key in it. Granted, it is [laid out](TransactionSlot::lay_out) in the
    /// slot, and ended by [`commit_with`](OpenTransaction::commit_with); whatever else is answered, it is rolled back.
    ///
    /// Never waits for another transaction that is at the key: that is [`Claimed::Busy`]. One that came first, and
    /// that this transaction's snapshot does not see, is no error either: the transaction begins anew.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. Nothing was claimed, and nothing will be: a transaction that is lost is never committed.
    ///
    /// # Cancellation
    ///
    /// Rolled back.
    fn begin_with_claim<'a>(
        &'a self,
        request: ClaimRequest<'a>,
        slot: &'a TransactionSlot,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>>;
}

/// Why a transaction was not committed, or may not have been.
#[derive(Debug)]
#[non_exhaustive]
pub enum CommitError {
    /// Another owner has the claim. Rolled back.
    Lost,
    /// Another transaction came first, as a database says at stricter levels of isolation. Rolled back; run again
    /// it may be committed.
    CameSecond(BoxError),
    /// The database refused. Rolled back.
    RolledBack(BoxError),
    /// The handler has ended the transaction itself, and only it knows how: its rows are there or not, the result is
    /// not.
    Ended,
    /// The answer to the commit is missing.
    InDoubt(BoxError),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "another owner has the claim: rolled back",
            Self::CameSecond(_) => "another transaction came first: rolled back",
            Self::RolledBack(_) => "the transaction was rolled back",
            Self::Ended => "the handler ended the transaction that it was lent",
            Self::InDoubt(_) => "the answer to the commit is missing",
        })
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost | Self::Ended => None,
            Self::CameSecond(error) | Self::RolledBack(error) | Self::InDoubt(error) => {
                Some(&**error)
            }
        }
    }
}
