//! What the tests share: a user's shop.

use std::error::Error as StdError;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool, Postgres as Db, Transaction};
use system_tests::servers::Postgres;
use tower_claim::store::{ClaimRequest, Claimed, Owner, State, Value};
use tower_claim::{
    Attempt, Claim, ClaimStore, Keeper, Key, Namespace, Nonce, OsEntropy, Settings, Terms, Token,
    Use,
};
use tower_claim_postgres::{Names, PostgresStore};
use tower_claim_sqlx::{Claims, TransactionError};

pub type Outcome = Result<(), Box<dyn StdError>>;

pub const SECOND: Duration = Duration::from_secs(1);
pub const DAY: Duration = Duration::from_secs(86_400);

/// A user's shop: its pool, with a table of receipts, and the claims beside it in one schema.
pub struct Shop {
    pub pool: PgPool,
    pub claims: Claims,
    pub store: PostgresStore,
    pub keeper: Keeper,
}

impl Shop {
    pub async fn open(connections: u32) -> Result<Self, Box<dyn StdError>> {
        static SERVER: OnceLock<Postgres> = OnceLock::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let url = SERVER.get_or_init(Postgres::start).url();
        let schema = format!("sqlx_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let builder = PostgresStore::builder().url(&url).schema(&schema);
        builder.migrate().await?;
        let store = builder.pool_size(connections as usize).connect().await?;
        let options = url.parse::<PgConnectOptions>()?;
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(60 * SECOND)
            .connect_with(options.options([("search_path", &schema)]))
            .await?;
        sqlx::query("create table receipts (id integer)")
            .execute(&pool)
            .await?;
        Ok(Self {
            pool,
            claims: Claims::named(&Names::new(&schema, "")?),
            keeper: Keeper::new(store.clone()),
            store,
        })
    }

    /// `HOST:PORT` of the server.
    pub fn address(&self) -> String {
        let options = self.pool.connect_options();
        format!("{}:{}", options.get_host(), options.get_port())
    }

    /// The pool's, by another port.
    pub fn options(&self, port: u16) -> PgConnectOptions {
        let options = self.pool.connect_options();
        options.as_ref().clone().host("127.0.0.1").port(port)
    }

    /// On a busy machine the answer may be late; the keeper gives back what it could not answer for.
    pub async fn claim(&self, key: Key, terms: &Terms) -> Result<Claim, Box<dyn StdError>> {
        let until = Instant::now() + 30 * SECOND;
        loop {
            match self.keeper.claim(key, None, terms, Token::ZERO).await {
                Ok(Attempt::Granted(claim)) => return Ok(claim),
                other if Instant::now() > until => {
                    return Err(format!("not granted: {other:?}").into());
                }
                _ => tokio::time::sleep(SECOND / 20).await,
            }
        }
    }

    /// A hold that nobody beats, by the store alone.
    pub async fn hold(&self, key: Key, lease: Duration) -> Result<Owner, Box<dyn StdError>> {
        let (nonce, settings) = (Nonce::draw(&OsEntropy), Settings::new(lease));
        match self.store.claim(self.ask(key, nonce, &settings)).await? {
            Claimed::Granted(grant) => Ok(Owner {
                key,
                nonce,
                token: grant.token,
            }),
            other => Err(format!("not granted: {other:?}").into()),
        }
    }

    pub fn ask<'a>(&self, key: Key, nonce: Nonce, settings: &'a Settings) -> ClaimRequest<'a> {
        ClaimRequest {
            key,
            nonce,
            fingerprint: None,
            settings,
            floor: Token::ZERO,
            not_after: self.store.now().saturating_add(60 * SECOND),
        }
    }

    pub async fn finish_in(
        &self,
        tx: &mut PgConnection,
        owner: impl Into<Owner>,
    ) -> Result<(), TransactionError> {
        self.claims.finish_in(tx, owner, receipt(), DAY).await
    }

    pub async fn receipts(&self) -> Result<i64, sqlx::Error> {
        sqlx::query_scalar("select count(*) from receipts")
            .fetch_one(&self.pool)
            .await
    }

    pub async fn state(&self, key: Key) -> Result<State, Box<dyn StdError>> {
        let record = self.store.peek(key).await?;
        Ok(record.map_or(State::Free, |record| record.state))
    }

    /// Ends the session of a transaction, as a crash of its process does.
    pub async fn cut(&self, tx: &mut Transaction<'_, Db>) -> Outcome {
        let session: i32 = sqlx::query_scalar("select pg_backend_pid()")
            .fetch_one(&mut **tx)
            .await?;
        sqlx::query("select pg_terminate_backend($1, 5000)")
            .bind(session)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

/// The business of a transaction.
pub async fn write(tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("insert into receipts (id) values (7)")
        .execute(tx)
        .await?;
    Ok(())
}

pub fn key(name: &str) -> Key {
    Key::builder(Use::Idempotency, &Namespace::default())
        .part(name)
        .build()
}

pub fn receipt() -> Value {
    Value::Kept("receipt 7".into())
}

pub fn ten_seconds() -> Result<Terms, Box<dyn StdError>> {
    Ok(Terms::builder(10 * SECOND).build()?)
}
