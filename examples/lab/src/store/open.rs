//! From an address to a store that answers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_claim::{
    ClaimAdmin, ClaimMany, ConfigError, DynClaimAdmin, DynClaimMany, DynFenceStore,
    MemoryFenceStore, MemoryStore,
};

use super::Store;
use crate::ledger::{Books, MemoryBooks};
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

/// The whole chain of causes, on one line.
impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error: &dyn Error = match self {
            OpenError::Config(error) => error,
            OpenError::Store(error) => &**error,
        };
        let mut said = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let more = error.to_string();
            // Some errors say their cause themselves.
            if !said.contains(&more) {
                said = format!("{said}: {more}");
            }
            cause = error.source();
        }
        f.write_str(&said.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl From<ConfigError> for OpenError {
    fn from(error: ConfigError) -> Self {
        OpenError::Config(error)
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
        match self {
            Store::Memory => {
                let store = MemoryStore::builder()
                    .memory_limit(options.memory_limit)
                    .build()?;
                let fence = MemoryFenceStore::new();
                Ok(Opened::new(store, fence, MemoryBooks::default()))
            }
            Store::Redb(_) => Err(not_yet("redb:")),
            Store::Redis(_) => Err(not_yet("redis:")),
            Store::Postgres(_) => Err(not_yet("postgres:")),
            #[cfg(feature = "etcd")]
            Store::Etcd(_) => Err(not_yet("etcd:")),
        }
    }
}

fn not_yet(scheme: &str) -> OpenError {
    OpenError::Config(ConfigError::new(
        "store",
        format!("not yet: --store {scheme}"),
    ))
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
