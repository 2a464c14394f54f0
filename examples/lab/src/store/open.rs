//! From an address to a store that answers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_claim::{
    ClaimAdmin, ClaimMany, ConfigError, DynClaimAdmin, DynClaimMany, DynFenceStore,
    MemoryFenceStore, MemoryStore,
};

#[cfg(feature = "etcd")]
use tower_claim_etcd::{EtcdFenceStore, EtcdStore};
use tower_claim_postgres::PostgresStore;
use tower_claim_redb::RedbStore;
use tower_claim_redis::RedisStore;

use super::Store;
#[cfg(feature = "etcd")]
use crate::ledger::EtcdBooks;
use crate::ledger::{Books, MemoryBooks, PostgresBooks, REDIS_PREFIX, RedisBooks};
use crate::options::Options;

/// How long a store may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(5);

/// One engine, in the roles it has here.
#[derive(Debug)]
pub(crate) struct Opened {
    /// What the layers ask.
    pub(crate) claims: Arc<dyn DynClaimMany>,
    /// The same claims, as operators see them.
    pub(crate) admin: Arc<dyn DynClaimAdmin>,
    /// The marks of what has been written.
    pub(crate) fence: Arc<dyn DynFenceStore>,
    /// What has been written.
    pub(crate) books: Arc<dyn Books>,
}

/// Why there is no store.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The options do not fit it.
    Config(ConfigError),
    /// It does not answer, or is another one than it should be.
    Store(Box<dyn Error + Send + Sync>),
}

/// One line. The engines' errors say their causes themselves.
impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self {
            OpenError::Config(error) => error.to_string(),
            OpenError::Store(error) => error.to_string(),
        };
        f.write_str(&said.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// Says the causes of an error as well: those of the clients say little alone, and some say them themselves.
fn with_causes(error: Box<dyn Error + Send + Sync>) -> OpenError {
    let mut said = format!("the ledger: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        cause = error.source();
    }
    OpenError::Store(said.into())
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for OpenError {
    fn from(error: E) -> Self {
        OpenError::Store(error.into())
    }
}

impl Store {
    /// Opens the store, and asks it something: a wrong address or password shows now, not at the first
    /// request.
    pub(crate) async fn open(&self, options: &Options) -> Result<Opened, OpenError> {
        match tokio::time::timeout(PATIENCE, self.connect(options)).await {
            Ok(opened) => opened,
            Err(_) => Err(OpenError::Store(
                format!("no answer within {PATIENCE:?}").into(),
            )),
        }
    }

    async fn connect(&self, options: &Options) -> Result<Opened, OpenError> {
        let namespace = &options.namespace;
        match self {
            Store::Memory => {
                let store = MemoryStore::builder()
                    .memory_limit(options.memory_limit)
                    .build()
                    .map_err(OpenError::Config)?;
                let fence = MemoryFenceStore::new();
                Ok(Opened::new(store, fence, MemoryBooks::default()))
            }
            Store::Redb(path) => {
                let store = RedbStore::open(path)?;
                let fence = store.fence_store();
                Ok(Opened::new(store, fence, MemoryBooks::default()))
            }
            Store::Redis(url) => {
                let store = RedisStore::builder().url(url).prefix(REDIS_PREFIX);
                let store = store.connect().await?;
                let books = RedisBooks::connect(url, namespace).await;
                let books = books.map_err(|error| with_causes(error.into()))?;
                Ok(Opened::new(store.clone(), store, books))
            }
            Store::Postgres(url) => {
                PostgresStore::migrate(url).await?;
                let store = PostgresStore::connect(url).await?;
                let books = PostgresBooks::connect(url, store.clone(), namespace).await;
                let books = books.map_err(with_causes)?;
                Ok(Opened::new(store.clone(), store, books))
            }
            #[cfg(feature = "etcd")]
            Store::Etcd(nodes) => {
                let store = EtcdStore::builder().endpoints(nodes).connect().await?;
                let fence = EtcdFenceStore::new(&store);
                let books = EtcdBooks::connect(nodes, namespace).await;
                let books = books.map_err(|error| with_causes(error.into()))?;
                Ok(Opened::new(store, fence, books))
            }
        }
    }
}

impl Opened {
    fn new(
        claims: impl ClaimMany + ClaimAdmin,
        fence: impl tower_claim::FenceStore,
        books: impl Books + 'static,
    ) -> Self {
        let claims = Arc::new(claims);
        Self {
            claims: claims.clone(),
            admin: claims,
            fence: Arc::new(fence),
            books: Arc::new(books),
        }
    }
}
