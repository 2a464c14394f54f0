//! `--store`: where the claims are kept. All that a change of engine changes in a program is here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_claim::{DynClaimStore, MemoryStore};
#[cfg(feature = "etcd")]
use tower_claim_etcd::EtcdStore;
use tower_claim_postgres::PostgresStore;
use tower_claim_redb::RedbStore;
use tower_claim_redis::RedisStore;

use crate::client::BoxError;

/// How long a store may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The address of a store.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Store {
    engine: Engine,
    address: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Memory,
    Redb,
    Redis,
    Postgres,
    Etcd,
}

impl Store {
    /// Reads an address; `None` where no engine has one like it.
    pub(crate) fn parse(address: &str) -> Option<Self> {
        let (scheme, place) = address.split_once(':')?;
        let engine = match scheme {
            "memory" if place.is_empty() => Engine::Memory,
            "redb" if !place.is_empty() => Engine::Redb,
            "redis" | "redis+unix" if !place.is_empty() => Engine::Redis,
            "postgres" | "postgresql" if !place.is_empty() => Engine::Postgres,
            "etcd" if place.starts_with("//") => Engine::Etcd,
            _ => return None,
        };
        Some(Self {
            engine,
            address: address.to_owned(),
        })
    }

    /// Opens it. An error is one line.
    pub(crate) async fn open(&self) -> Result<Arc<dyn DynClaimStore>, BoxError> {
        let opened = tokio::time::timeout(PATIENCE, self.connect()).await;
        let opened = opened.unwrap_or_else(|_| Err(format!("no answer in {PATIENCE:?}").into()));
        opened.map_err(|error| {
            let why = error.to_string();
            let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("cannot open the store {self}: {why}").into()
        })
    }

    async fn connect(&self) -> Result<Arc<dyn DynClaimStore>, BoxError> {
        let address = self.address.as_str();
        let place = address.split_once(':').map_or("", |(_, place)| place);
        Ok(match self.engine {
            Engine::Memory => Arc::new(MemoryStore::new()),
            Engine::Redb => Arc::new(RedbStore::open(place)?),
            Engine::Redis if address.starts_with("redis+unix:") => {
                let socket = std::path::absolute(place.trim_start_matches("//"))?;
                let url = format!("redis+unix://{}", socket.display());
                Arc::new(RedisStore::connect(url).await?)
            }
            Engine::Redis => Arc::new(RedisStore::connect(address).await?),
            Engine::Postgres => {
                PostgresStore::migrate(address).await?;
                Arc::new(PostgresStore::connect(address).await?)
            }
            Engine::Etcd => etcd(place.trim_matches('/')).await?,
        })
    }
}

#[cfg(feature = "etcd")]
async fn etcd(nodes: &str) -> Result<Arc<dyn DynClaimStore>, BoxError> {
    let store = EtcdStore::builder().endpoints(nodes.split(','));
    Ok(Arc::new(store.connect().await?))
}

#[cfg(not(feature = "etcd"))]
async fn etcd(_: &str) -> Result<Arc<dyn DynClaimStore>, BoxError> {
    Err("this program was built without it; run it with `cargo run -p demo --features etcd`".into())
}

impl Default for Store {
    fn default() -> Self {
        Self {
            engine: Engine::Memory,
            address: "memory:".to_owned(),
        }
    }
}

/// The address without user, password and parameters.
impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self.engine, Engine::Memory | Engine::Redb) {
            return f.write_str(&self.address);
        }
        let address = self.address.split('?').next().unwrap_or_default();
        match (address.split_once("://"), address.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, place))) => write!(f, "{scheme}://{place}"),
            _ => f.write_str(address),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_its_address_and_shows_no_password() {
        for (text, shown) in [
            ("memory:", "memory:"),
            ("redb:claims", "redb:claims"),
            ("redis://:secret@h:1/2", "redis://h:1/2"),
            ("redis+unix:/tmp/s?pass=secret", "redis+unix:/tmp/s"),
            ("postgres://u:se@cret@h/db", "postgres://h/db"),
            ("postgresql://h/db?password=secret", "postgresql://h/db"),
            ("etcd://a:1,b:2", "etcd://a:1,b:2"),
        ] {
            let store = Store::parse(text).unwrap();
            assert_eq!(store.to_string(), shown);
            assert_eq!(format!("{store:?}"), shown);
        }
    }

    #[test]
    fn what_is_no_address_is_none() {
        for text in [
            "",
            "memory",
            "memory:x",
            "redb:",
            "redis:",
            "etcd:h:1",
            "mysql://h",
        ] {
            assert_eq!(Store::parse(text), None, "{text:?}");
        }
    }
}
