//! Redis: the suite, and what only a real server shows.

mod suite;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use system_tests::servers::Redis;
use tower_claim_redis::{RedisStore, RedisStoreBuilder};

/// One server for all tests that break nothing.
fn server() -> &'static Redis {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    SERVER.get_or_init(Redis::start)
}

/// A prefix that no other test uses.
fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}:", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store with a prefix of its own.
fn builder() -> RedisStoreBuilder {
    RedisStore::builder().url(server().url()).prefix(fresh())
}

async fn store() -> RedisStore {
    builder().connect().await.expect("the server is up")
}
