//! A transaction that is lent to a handler, and ended by the layer around it.

use std::fmt;
use std::ops::{Deref, DerefMut};

use futures_util::future::BoxFuture;
use http::Extensions;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tower_claim::StoreError;
use tower_claim::store::{ClaimRequest, Claimed, FinishRequest};
use tower_claim::transaction::{
    BeginError, BeginWithClaim, CommitError, Lent, OpenTransaction, TransactionSlot,
};
use tower_claim_postgres::TransactionError;
use tower_claim_postgres::statement::came_second;

use crate::Claims;
use crate::error::store_error;

/// How many snapshots a claim is tried in, where each is older than what others committed meanwhile.
const SNAPSHOTS: u32 = 4;

/// Transactions for handlers behind an idempotency layer over `PostgresStore`: **rows and answer are committed
/// together, or neither is**, and a run that was taken over commits nothing. Clones share the pool.
///
/// The handler takes a [`RunTransaction`], writes, and answers; it neither finishes nor commits. What the layer
/// then does, and what a crash leaves: the table of [`tower_claim::transaction`].
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, parts: http::request::Parts) -> Result<(), Box<dyn std::error::Error>> {
/// use tower_claim_sqlx::Transactions;
///
/// let transactions = Transactions::new(pool);
/// let mut tx = transactions.begin(&parts.extensions).await?; // with axum: an extractor, feature `axum`
/// sqlx::query("insert into orders (item) values ('coffee')").execute(&mut *tx).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Transactions {
    pool: PgPool,
    claims: Claims,
    begin: &'static str,
}

impl Transactions {
    /// Transactions on connections of this pool, at the server's default level (READ COMMITTED); claims on
    /// tables with the default names.
    ///
    /// The pool is of the database that the layer's store keeps its tables in.
    pub fn new(pool: PgPool) -> Self {
        Self {
            pool,
            claims: Claims::new(),
            begin: "BEGIN",
        }
    }

    /// Calls on tables with other names, or with waits of their own. [`Claims::new`] by default.
    #[must_use]
    pub fn claims(mut self, claims: Claims) -> Self {
        self.claims = claims;
        self
    }

    /// How a transaction begins, `BEGIN` by default: `BEGIN ISOLATION LEVEL SERIALIZABLE`.
    ///
    /// At REPEATABLE READ and above a heartbeat between the first statement and the end spoils the transaction
    /// (PostgreSQL says that another one came first): the request is answered 409 and may be repeated. Keep
    /// the work below a third of the lease there, or claim inside the transaction, where no heartbeat is.
    #[must_use]
    pub fn begin_with(mut self, statement: &'static str) -> Self {
        self.begin = statement;
        self
    }

    /// Begins the transaction of this run; or hands over the one that the layer began, where it claims inside
    /// (`IdempotencyBuilder::claim_inside`). The extensions are the request's.
    ///
    /// # Errors
    ///
    /// [`BeginError`].
    ///
    /// # Cancellation
    ///
    /// The connection goes back to its pool; what was begun is rolled back.
    pub async fn begin(&self, extensions: &Extensions) -> Result<RunTransaction, BeginError> {
        let slot = extensions.get::<TransactionSlot>();
        let slot = slot.ok_or(BeginError::NoRun)?;
        if let Some(claimed) = slot.pick_up()? {
            return Ok(RunTransaction(claimed));
        }
        let open = self.open().await.map_err(BeginError::Store)?;
        Ok(RunTransaction(slot.lend(open)?))
    }

    async fn open(&self) -> Result<Open, StoreError> {
        let begun = self.pool.begin_with(self.begin).await;
        Ok(Open {
            transaction: begun.map_err(|error| store_error(None, error))?,
            claims: self.claims.clone(),
        })
    }

    /// The claim is the first statement, so a transaction whose snapshot is older than another's commit begins anew.
    async fn begin_and_claim(
        &self,
        request: ClaimRequest<'_>,
        slot: &TransactionSlot,
    ) -> Result<Claimed, StoreError> {
        let mut tries = SNAPSHOTS;
        loop {
            tries -= 1;
            let mut open = self.open().await?;
            match self.claims.claim_in(&mut open.transaction, request).await {
                Ok(Claimed::Granted(grant)) => {
                    slot.lay_out(open).map_err(StoreError::unavailable)?;
                    return Ok(Claimed::Granted(grant));
                }
                Ok(refused) => {
                    let _ = open.transaction.rollback().await;
                    return Ok(refused);
                }
                Err(TransactionError::Store(error)) if came_second(&error) && tries > 0 => {
                    let _ = open.transaction.rollback().await;
                }
                Err(TransactionError::Store(error)) => return Err(error),
                Err(error) => return Err(StoreError::unavailable(error)),
            }
        }
    }
}

/// For `IdempotencyBuilder::claim_inside`.
impl BeginWithClaim for Transactions {
    fn begin_with_claim<'a>(
        &'a self,
        request: ClaimRequest<'a>,
        slot: &'a TransactionSlot,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(self.begin_and_claim(request, slot))
    }
}

/// The transaction of a run. Use `&mut *tx` as sqlx' executor. It has no commit: the layer commits when the
/// handler has answered.
pub struct RunTransaction(Lent<Open>);

impl Deref for RunTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0.transaction
    }
}

impl DerefMut for RunTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0.transaction
    }
}

impl fmt::Debug for RunTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunTransaction").finish_non_exhaustive()
    }
}

struct Open {
    transaction: Transaction<'static, Postgres>,
    claims: Claims,
}

impl Open {
    async fn commit(mut self, finish: FinishRequest) -> Result<(), CommitError> {
        let FinishRequest { owner, value, keep } = finish;
        let finished = self
            .claims
            .finish_in(&mut self.transaction, owner, value, keep);
        if let Err(error) = finished.await {
            // Nothing was committed, whatever became of the statement.
            let _ = self.transaction.rollback().await;
            return Err(match error {
                TransactionError::Lost => CommitError::Lost,
                TransactionError::Store(error) => not_committed(error),
                error => CommitError::RolledBack(error.into()),
            });
        }
        let committed = self.transaction.commit().await;
        committed.map_err(|error| match store_error(Some(&owner.key), error) {
            error @ StoreError::Ambiguous(_) => CommitError::InDoubt(error.into()),
            error => not_committed(error),
        })
    }
}

fn not_committed(error: StoreError) -> CommitError {
    if came_second(&error) {
        CommitError::CameSecond(error.into())
    } else {
        CommitError::RolledBack(error.into())
    }
}

impl OpenTransaction for Open {
    fn commit_with(
        self: Box<Self>,
        finish: FinishRequest,
    ) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(self.commit(finish))
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // An error closes the connection, and the server rolls back.
            let _ = self.transaction.rollback().await;
        })
    }
}
