//! What the tests of this engine share.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};
use tower_claim::store::{
    Beat, ClaimRequest, Claimed, FinishRequest, Grant, Owner, ReleaseRequest, Value,
};
use tower_claim::{ClaimStore, Key, Namespace, Nonce, OsEntropy, Settings, Token, Use};
use tower_claim_postgres::{PostgresStore, PostgresStoreBuilder};

use super::{fresh_schema, server};

pub const SECOND: Duration = Duration::from_secs(1);

/// A store's settings over migrated tables of its own; their schema.
pub async fn tables() -> (PostgresStoreBuilder, String) {
    let schema = fresh_schema();
    let builder = PostgresStore::builder()
        .url(&server().url())
        .schema(&schema);
    builder.migrate().await.expect("it migrates");
    (builder, schema)
}

/// A store over tables of its own, and their schema.
pub async fn store() -> (PostgresStore, String) {
    let (builder, schema) = tables().await;
    (builder.connect().await.expect("it connects"), schema)
}

/// A session of a stranger.
pub async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("the server is there");
    tokio::spawn(connection);
    client
}

pub fn key() -> Key {
    Key::builder(Use::Lease, &Namespace::default())
        .part(nonce().as_bytes())
        .build()
}

pub fn nonce() -> Nonce {
    Nonce::draw(&OsEntropy)
}

/// What is needed to ask again.
#[derive(Debug, Clone)]
pub struct Ask {
    pub key: Key,
    pub nonce: Nonce,
    pub settings: Settings,
    pub not_after: tower_claim::store::StoreTime,
}

impl Ask {
    pub fn new(store: &PostgresStore, key: Key, lease: Duration) -> Self {
        Self {
            key,
            nonce: nonce(),
            settings: Settings::new(lease),
            not_after: store.now().saturating_add(60 * SECOND),
        }
    }

    pub fn request(&self) -> ClaimRequest<'_> {
        ClaimRequest {
            key: self.key,
            nonce: self.nonce,
            fingerprint: None,
            settings: &self.settings,
            floor: Token::ZERO,
            not_after: self.not_after,
        }
    }

    pub fn owner(&self, token: Token) -> Owner {
        Owner {
            key: self.key,
            nonce: self.nonce,
            token,
        }
    }

    pub fn release(&self) -> ReleaseRequest {
        ReleaseRequest {
            key: self.key,
            nonce: self.nonce,
            token: None,
            not_after: self.not_after,
        }
    }
}

/// Rows of a table; of its `schema.name`.
pub async fn rows(client: &Client, table: &str) -> i64 {
    let count = format!("select count(*) from {table}");
    client.query_one(&count, &[]).await.expect("a count").get(0)
}

/// Claims a free key.
pub async fn hold(store: &PostgresStore, key: Key, lease: Duration) -> Owner {
    let ask = Ask::new(store, key, lease);
    let grant = granted(store.claim(ask.request()).await.expect("an answer"));
    ask.owner(grant.token)
}

#[track_caller]
pub fn granted(answer: Claimed) -> Grant {
    match answer {
        Claimed::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub fn kept(value: &'static str) -> Value {
    Value::Kept(value.into())
}

pub fn finish(owner: Owner, value: &'static str) -> FinishRequest {
    FinishRequest {
        owner,
        value: kept(value),
        keep: 60 * SECOND,
    }
}

pub fn beat(owner: Owner) -> Beat {
    Beat { owner, progress: 0 }
}

/// Waits for a condition, 30 s at most.
pub async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let end = Instant::now() + 30 * SECOND;
    while !condition().await {
        assert!(Instant::now() < end, "{what}: not within 30 s");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
