//! Redis: the suite, and what only a real server shows.

mod broken;
mod bytes;
mod cluster;
mod connect;
mod cost;
mod failure;
mod outage;
mod sentinel;
mod stress;
mod suite;
mod throughput;
mod tls;
mod trips;
mod wait;
mod warned;
mod wire;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use system_tests::servers::Redis;
use tower_claim::store::{ClaimRequest, Claimed, Owner, ReleaseRequest};
use tower_claim::{ClaimStore, Key, Namespace, Nonce, OsEntropy, Settings, Token, Use};
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

fn nonce() -> Nonce {
    Nonce::draw(&OsEntropy)
}

fn key() -> Key {
    let part = nonce().to_string();
    Key::builder(Use::Lease, &Namespace::default())
        .part(&part)
        .build()
}

fn ask<'a>(store: &RedisStore, key: Key, settings: &'a Settings) -> ClaimRequest<'a> {
    ClaimRequest {
        key,
        nonce: nonce(),
        fingerprint: None,
        settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(20)),
    }
}

/// A claim with a lease of 20 s.
async fn claim(store: &RedisStore, key: Key) -> Claimed {
    let settings = Settings::new(Duration::from_secs(20));
    store
        .claim(ask(store, key, &settings))
        .await
        .expect("an answer")
}

async fn granted(store: &RedisStore, key: Key) -> Owner {
    granted_for(store, key, &Settings::new(Duration::from_secs(20))).await
}

async fn granted_for(store: &RedisStore, key: Key, settings: &Settings) -> Owner {
    let request = ask(store, key, settings);
    match store.claim(request).await {
        Ok(Claimed::Granted(grant)) => Owner {
            key,
            nonce: request.nonce,
            token: grant.token,
        },
        other => panic!("no grant: {other:?}"),
    }
}

fn release_of(store: &RedisStore, owner: Owner) -> ReleaseRequest {
    ReleaseRequest {
        key: owner.key,
        nonce: owner.nonce,
        token: Some(owner.token),
        not_after: store.now().saturating_add(Duration::from_secs(20)),
    }
}

/// The server itself, beside the store.
async fn raw() -> MultiplexedConnection {
    let client = redis::Client::open(server().url()).expect("a url");
    client
        .get_multiplexed_async_connection()
        .await
        .expect("the server is up")
}
