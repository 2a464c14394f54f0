//! A transaction that is lent to a handler, and ended by the layer around it.

use std::fmt;
use std::ops::Deref;

use deadpool_postgres::{Object, Pool};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Extensions;
use tokio_postgres::{Client, Row};
use tower_claim::store::{ClaimRequest, Claimed};
use tower_claim::transaction::{BeginError, BeginWithClaim, Lent, TransactionSlot};
use tower_claim::{Key, StoreError};

use crate::PostgresStore;
use crate::error::of_statement;
use crate::lend::{Open, Session, begin_and_claim, beginning};
use crate::statement::{Call, Statements};

/// Transactions for handlers behind an idempotency layer over [`PostgresStore`]: **rows and answer are committed
/// together, or neither is**, and a run that was taken over commits nothing. Clones share the pool.
///
/// The handler takes a [`RunTransaction`], writes, and answers; it neither finishes nor commits. What the layer
/// then does, and what a crash leaves: the table of [`tower_claim::transaction`].
///
/// ```no_run
/// # async fn example(
/// #     store: tower_claim_postgres::PostgresStore, pool: deadpool_postgres::Pool, parts: http::request::Parts,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use tower_claim_postgres::Transactions;
///
/// let transactions = Transactions::new(store, pool);
/// let tx = transactions.begin(&parts.extensions).await?; // with axum: an extractor, feature `axum`
/// tx.execute("insert into orders (item) values ('coffee')", &[]).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Transactions {
    store: PostgresStore,
    pool: Pool,
    begin: String,
}

impl Transactions {
    /// Transactions on connections of this pool, at the server's default level (READ COMMITTED). The pool is of
    /// the database that the store keeps its tables in.
    pub fn new(store: PostgresStore, pool: Pool) -> Self {
        Self {
            store,
            pool,
            begin: beginning("BEGIN"),
        }
    }

    /// How a transaction begins, `BEGIN` by default: `BEGIN ISOLATION LEVEL SERIALIZABLE`.
    ///
    /// At REPEATABLE READ and above a heartbeat between the first statement and the end spoils the transaction
    /// (PostgreSQL says that another one came first): the request is answered 409 and may be repeated. Keep
    /// the work below a third of the lease there, or claim inside the transaction, where no heartbeat is.
    #[must_use]
    pub fn begin_with(mut self, statement: &'static str) -> Self {
        self.begin = beginning(statement);
        self
    }

    /// Begins the transaction of this run; or hands over the one that the layer began, where it claims inside
    /// (`IdempotencyBuilder::claim_inside`). The extensions are the request's. Waits for a connection as long as
    /// the pool is set to.
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
        let client = self.pool.get().await.map_err(StoreError::unavailable)?;
        // Dropped from here on, it rolls back.
        let session = Pooled {
            store: self.store.clone(),
            client,
            is_over: false,
        };
        let begun = session.client.batch_execute(&self.begin).await;
        begun.map_err(|error| of_statement(error, None))?;
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

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions")
            .field("store", &self.store)
            .field("begin", &self.begin)
            .finish_non_exhaustive()
    }
}

/// The transaction of a run: a client whose statements are part of it. Do not end it: the layer does, when the
/// handler has answered. Where a statement has ended it all the same, the answer is neither kept nor sent but told as a
/// panic, and a repeat runs after one lease.
pub struct RunTransaction(Lent<Open<Pooled>>);

impl Deref for RunTransaction {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0.client
    }
}

impl fmt::Debug for RunTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunTransaction").finish_non_exhaustive()
    }
}

struct Pooled {
    store: PostgresStore,
    client: Object,
    is_over: bool,
}

impl Pooled {
    async fn end(&mut self, statement: &str) -> Result<(), tokio_postgres::Error> {
        let ended = self.client.batch_execute(statement).await;
        self.is_over = ended.is_ok();
        ended
    }
}

impl Session for Pooled {
    type Answer = Row;

    fn statements(&self) -> &Statements {
        self.store.statements()
    }

    async fn ask(&mut self, key: Option<&Key>, call: &Call) -> Result<Option<Row>, StoreError> {
        let client: &Client = &self.client;
        self.store.ask_row(client, call, key).await
    }

    async fn commit(&mut self) -> Result<(), StoreError> {
        let ended = self.end("COMMIT").await;
        ended.map_err(|error| of_statement(error, None))
    }

    async fn roll_back(&mut self) {
        // Not answered, it is sent again by the drop.
        self.end("ROLLBACK").await.ok();
    }
}

/// The connection goes back to its pool, whose next user must find no open transaction: the first poll sends
/// the statement, ahead of all that follows on the connection.
impl Drop for Pooled {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.client.batch_execute("ROLLBACK").now_or_never();
        }
    }
}
