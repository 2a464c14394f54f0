//! Ledgers in PostgreSQL: two tables that the lab makes for itself.

use std::time::Duration;

use deadpool_postgres::{Manager, Object, Pool, PoolError, Runtime};
use futures_util::future::BoxFuture;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, NoTls, Row};
use tower_claim::engine::call_within;
use tower_claim::store::Admission;
use tower_claim::{Namespace, StoreError};
use tower_claim_postgres::{PostgresStore, TransactionError};

use super::books::{Book, Books, Entry};
use super::name;

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(2);

/// Under a lock: two labs that start at once on an empty database would both find no table.
const TABLES: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(hashtext('lab_ledger'));
    CREATE TABLE IF NOT EXISTS lab_ledger_entry (
        ledger text NOT NULL,
        n bigint GENERATED ALWAYS AS IDENTITY,
        token bigint NOT NULL,
        nonce text NOT NULL,
        pid bigint NOT NULL,
        PRIMARY KEY (ledger, n)
    );
    CREATE TABLE IF NOT EXISTS lab_ledger_refused (
        ledger text PRIMARY KEY,
        refused bigint NOT NULL
    );
    COMMIT";

/// What waits for a lock longer than its caller waits for it would keep its connection for nothing.
const PATIENCE: &str = "SET LOCAL lock_timeout = '1500ms'; SET LOCAL statement_timeout = '1500ms'";

/// Ledgers of one namespace in PostgreSQL. A write is admitted in its own transaction: its mark stays locked
/// until it is committed, so the order of entries is the order of admission.
#[derive(Debug)]
pub(crate) struct PostgresBooks {
    store: PostgresStore,
    pool: Pool,
    namespace: Namespace,
}

impl PostgresBooks {
    /// Connects as the store does, and makes the tables.
    pub(crate) async fn connect(
        url: &str,
        store: PostgresStore,
        namespace: &Namespace,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let pool = Pool::builder(Manager::new(url.parse::<Config>()?, NoTls))
            .max_size(4)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(LIMIT))
            .create_timeout(Some(LIMIT))
            .build()?;
        pool.get().await?.batch_execute(TABLES).await?;
        let namespace = namespace.clone();
        Ok(Self {
            store,
            pool,
            namespace,
        })
    }

    async fn client(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => StoreError::unavailable(error),
            error => StoreError::unavailable(error),
        })
    }

    async fn append(&self, id: &str, entry: &Entry) -> Result<Admission, StoreError> {
        let name = name(&self.namespace, id);
        let mut client = self.client().await?;
        let transaction = client.transaction().await;
        let transaction = transaction.map_err(StoreError::unavailable)?;
        let patience = transaction.batch_execute(PATIENCE).await;
        patience.map_err(StoreError::unavailable)?;
        let (token, nonce) = entry.grant()?;
        let fenced = self.store.fence_in(&*transaction, &name, token, nonce);
        match fenced.await {
            Ok(()) => {}
            Err(TransactionError::Stale { high }) => return Ok(Admission::Stale { high }),
            Err(TransactionError::Collision { high }) => return Ok(Admission::Collision { high }),
            Err(TransactionError::Store(error)) => return Err(error),
            Err(error) => return Err(StoreError::unavailable(error)),
        }
        let append =
            "INSERT INTO lab_ledger_entry (ledger, token, nonce, pid) VALUES ($1, $2, $3, $4)";
        let (token, pid) = (entry.token.cast_signed(), i64::from(entry.pid));
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&name, Type::TEXT),
            (&token, Type::INT8),
            (&entry.nonce, Type::TEXT),
            (&pid, Type::INT8),
        ];
        let appended = transaction.execute_typed(append, &values).await;
        appended.map_err(StoreError::unavailable)?;
        transaction.commit().await.map_err(StoreError::ambiguous)?;
        Ok(Admission::Admitted)
    }
}

impl Books for PostgresBooks {
    fn write<'a>(
        &'a self,
        id: &'a str,
        entry: &'a Entry,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        Box::pin(call_within(LIMIT, self.append(id, entry)))
    }

    fn count_refusal<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let count = "INSERT INTO lab_ledger_refused AS r (ledger, refused) VALUES ($1, 1)
                     ON CONFLICT (ledger) DO UPDATE SET refused = r.refused + 1";
        Box::pin(call_within(LIMIT, async move {
            let client = self.client().await?;
            let name = name(&self.namespace, id);
            let counted = client.execute_typed(count, &[(&name, Type::TEXT)]).await;
            counted.map(drop).map_err(StoreError::ambiguous)
        }))
    }

    fn read<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Book, StoreError>> {
        // One statement: one moment.
        let read = "SELECT e.token, e.nonce, e.pid,
                        (SELECT refused FROM lab_ledger_refused WHERE ledger = $1)
                    FROM (SELECT) one LEFT JOIN lab_ledger_entry e ON e.ledger = $1 ORDER BY e.n";
        Box::pin(call_within(LIMIT, async move {
            let client = self.client().await?;
            let name = name(&self.namespace, id);
            let rows = client.query_typed(read, &[(&name, Type::TEXT)]).await;
            let book = rows.and_then(|rows| book(&rows));
            book.map_err(StoreError::unavailable)
        }))
    }
}

fn book(rows: &[Row]) -> Result<Book, tokio_postgres::Error> {
    let mut book = Book::default();
    for row in rows {
        let refused: Option<i64> = row.try_get(3)?;
        book.refused = refused.map_or(0, i64::cast_unsigned);
        // None where the ledger has no entry yet.
        if let Some(token) = row.try_get::<_, Option<i64>>(0)? {
            book.admitted.push(Entry {
                token: token.cast_unsigned(),
                nonce: row.try_get(1)?,
                pid: u32::try_from(row.try_get::<_, i64>(2)?).unwrap_or_default(),
            });
        }
    }
    Ok(book)
}
