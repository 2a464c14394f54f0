//! Places on the engines.

use tempfile::TempDir;
use tower_claim_redb::RedbStore;

#[cfg(feature = "etcd")]
pub use etcd::Etcd;
#[cfg(feature = "postgres")]
pub use postgres::Postgres;
#[cfg(feature = "redis")]
pub use redis::Redis;

use super::scene::Engine;
#[cfg(any(feature = "redis", feature = "etcd"))]
use super::scene::{NO_POLL, PATIENCE};

/// A number that no other place of this process has.
#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd"))]
fn fresh() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// redb: a file, which one process owns. Its stores are the same store.
pub struct Redb {
    store: RedbStore,
    _folder: TempDir,
}

impl Engine for Redb {
    type Store = RedbStore;

    async fn place() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = RedbStore::open(folder.path().join("claims.redb"));
        Self {
            store: store.expect("a file of claims"),
            _folder: folder,
        }
    }

    async fn store(&self) -> RedbStore {
        self.store.clone()
    }

    fn address(&self) -> Option<String> {
        None
    }

    async fn at(path: &str) -> RedbStore {
        RedbStore::open(path).expect("a file of claims")
    }
}

#[cfg(feature = "redis")]
mod redis {
    use std::sync::OnceLock;

    use system_tests::servers;
    use tower_claim_redis::RedisStore;

    use super::{Engine, NO_POLL, PATIENCE, fresh};

    /// A prefix on the server that these tests share.
    pub struct Redis(String);

    impl Redis {
        pub fn server() -> &'static servers::Redis {
            static SERVER: OnceLock<servers::Redis> = OnceLock::new();
            SERVER.get_or_init(servers::Redis::start)
        }
    }

    impl Engine for Redis {
        type Store = RedisStore;

        async fn place() -> Self {
            Self(format!("i{}:", fresh()))
        }

        async fn store(&self) -> RedisStore {
            Self::at(&format!("{} {}", Self::server().url(), self.0)).await
        }

        fn address(&self) -> Option<String> {
            Some(format!("{} {}", Self::server().url(), self.0))
        }

        async fn at(address: &str) -> RedisStore {
            let (url, prefix) = address.split_once(' ').expect("an address");
            let store = RedisStore::builder().url(url).prefix(prefix);
            let store = store.call_timeout(PATIENCE).poll_step(NO_POLL);
            store.connect().await.expect("the server runs")
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::sync::OnceLock;

    use system_tests::servers;
    use tower_claim_postgres::PostgresStore;

    use super::super::scene::{PATIENCE, SECOND};
    use super::{Engine, fresh};

    /// A schema on the server that these tests share.
    pub struct Postgres(String);

    impl Postgres {
        pub fn server() -> &'static servers::Postgres {
            static SERVER: OnceLock<servers::Postgres> = OnceLock::new();
            // Each process of each test has seven sessions at the most.
            let settings = ["full_page_writes=off", "max_connections=400"];
            SERVER.get_or_init(|| servers::Postgres::with(&settings))
        }

        pub fn schema(&self) -> &str {
            &self.0
        }
    }

    impl Engine for Postgres {
        type Store = PostgresStore;

        async fn place() -> Self {
            let schema = format!("idempotency_{}", fresh());
            let tables = PostgresStore::builder().url(&Self::server().url());
            let tables = tables.pool_wait(PATIENCE).call_timeout(PATIENCE);
            let made = tables.schema(&schema).migrate().await;
            made.expect("tables are made");
            Self(schema)
        }

        async fn store(&self) -> PostgresStore {
            Self::at(&format!("{} {}", Self::server().url(), self.0)).await
        }

        fn address(&self) -> Option<String> {
            Some(format!("{} {}", Self::server().url(), self.0))
        }

        async fn at(address: &str) -> PostgresStore {
            let (url, schema) = address.rsplit_once(' ').expect("an address");
            // Two connections are enough for whatever waits. A watch that begins while its row is locked is not
            // announced, and looks again after a poll step.
            let store = PostgresStore::builder().url(url).schema(schema);
            let store = store.pool_size(2).pool_wait(PATIENCE);
            let store = store.call_timeout(PATIENCE).poll_step(SECOND);
            store.connect().await.expect("the server runs")
        }
    }
}

#[cfg(feature = "etcd")]
mod etcd {
    use std::sync::OnceLock;

    use system_tests::servers;
    use tower_claim_etcd::EtcdStore;

    use super::{Engine, NO_POLL, PATIENCE, fresh};

    /// A prefix on the server that these tests share.
    pub struct Etcd(String);

    impl Etcd {
        fn server() -> &'static servers::Etcd {
            static SERVER: OnceLock<servers::Etcd> = OnceLock::new();
            SERVER.get_or_init(servers::Etcd::start)
        }
    }

    impl Engine for Etcd {
        type Store = EtcdStore;

        const KEEPS_LARGE: bool = false;

        async fn place() -> Self {
            Self(format!("i{}", fresh()))
        }

        async fn store(&self) -> EtcdStore {
            Self::at(&self.address().expect("it has one")).await
        }

        fn address(&self) -> Option<String> {
            let server = Self::server().addresses().remove(0);
            Some(format!("http://{server} {}", self.0))
        }

        async fn at(address: &str) -> EtcdStore {
            let (url, prefix) = address.split_once(' ').expect("an address");
            let store = EtcdStore::builder().endpoints([url]).prefix(prefix);
            let store = store.call_timeout(PATIENCE).poll(NO_POLL);
            store.connect().await.expect("the server runs")
        }
    }
}
