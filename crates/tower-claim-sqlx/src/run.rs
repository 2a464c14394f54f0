//! A transaction that is lent to a handler, and ended by the layer around it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::Extensions;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager as Manager;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;
use tower_claim::store::{ClaimRequest, Claimed};
use tower_claim::transaction::{BeginError, BeginWithClaim, Lent, TransactionSlot};
use tower_claim::{Key, StoreError};
use tower_claim_postgres::PostgresStore;
use tower_claim_postgres::lend::{Open, Session, begin_and_claim, beginning};
use tower_claim_postgres::statement::{Call, Statements};

use crate::Claims;
use crate::error::store_error;
use crate::row::{Answer, look};

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
    begin: Arc<str>,
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
            begin: beginning("BEGIN").into(),
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
        self.begin = beginning(statement).into();
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
        slot.is_of(PostgresStore::CAPABILITIES.engine)?;
        if let Some(claimed) = slot.pick_up()? {
            return Ok(RunTransaction(claimed));
        }
        let open = self.open().await.map_err(BeginError::Store)?;
        Ok(RunTransaction(slot.lend(Open(open))?))
    }

    async fn open(&self) -> Result<Pooled, StoreError> {
        let connection = self.pool.acquire().await;
        // Dropped from here on, it rolls back.
        let mut session = Pooled {
            connection: connection.map_err(|error| store_error(None, error))?,
            claims: self.claims.clone(),
            is_begun: false,
        };
        // The statement is the user's own.
        let begin = AssertSqlSafe(Arc::clone(&self.begin)).into_sql_str();
        let begun = Manager::begin(&mut session.connection, Some(begin)).await;
        begun.map_err(|error| store_error(None, error))?;
        session.is_begun = true;
        Ok(session)
    }
}

/// For `IdempotencyBuilder::claim_inside`.
impl BeginWithClaim for Transactions {
    fn engine(&self) -> Option<&'static str> {
        Some(PostgresStore::CAPABILITIES.engine)
    }

    fn begin_with_claim<'a>(
        &'a self,
        request: ClaimRequest<'a>,
        slot: &'a TransactionSlot,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(begin_and_claim(|| self.open(), request, slot))
    }
}

/// The transaction of a run. Use `&mut *tx` as sqlx' executor. It has no commit: the layer commits when the
/// handler has answered.
///
/// Where a statement of the handler's has ended it all the same, the answer is neither kept nor sent but told as a panic,
/// and a repeat runs after one lease. So it is behind a savepoint whose [`begin`](sqlx::Acquire::begin) was dropped half-way:
/// sqlx rolls back the whole transaction then. A savepoint that was forgotten ([`mem::forget`](std::mem::forget)) commits
/// nothing.
pub struct RunTransaction(Lent<Open<Pooled>>);

impl Deref for RunTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0.connection
    }
}

impl DerefMut for RunTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0.connection
    }
}

impl fmt::Debug for RunTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunTransaction").finish_non_exhaustive()
    }
}

struct Pooled {
    connection: PoolConnection<Postgres>,
    claims: Claims,
    is_begun: bool,
}

impl Pooled {
    /// 1, but where the handler nests: one more for each savepoint that is open.
    fn depth(&self) -> usize {
        Manager::get_transaction_depth(&self.connection)
    }
}

impl Session for Pooled {
    type Answer = Answer;

    fn statements(&self) -> &Statements {
        self.claims.statements()
    }

    async fn ask(&mut self, key: Option<&Key>, call: &Call) -> Result<Option<Answer>, StoreError> {
        look(&mut self.connection, key, call).await
    }

    async fn commit(&mut self) -> Result<(), StoreError> {
        if self.depth() > 1 {
            // At this depth a commit would only release the savepoint. Whether its rows are to count nobody has said.
            self.roll_back().await;
            return Err(StoreError::Unsupported(
                "a savepoint that the handler forgot: commit it, roll it back, or drop it",
            ));
        }
        let committed = Manager::commit(&mut self.connection).await;
        committed.map_err(|error| store_error(None, error))
    }

    async fn roll_back(&mut self) {
        while self.depth() > 0 {
            if Manager::rollback(&mut self.connection).await.is_err() {
                // The server rolls back.
                self.connection.close_on_drop();
                return;
            }
        }
    }
}

/// The connection goes back to its pool, which sends what is left to be sent before anybody else gets it.
impl Drop for Pooled {
    fn drop(&mut self) {
        if !self.is_begun {
            // Dropped in the midst of it, or refused: perhaps it has begun, and sqlx does not know.
            self.connection.close_on_drop();
        }
        while self.depth() > 0 {
            Manager::start_rollback(&mut self.connection);
        }
    }
}
