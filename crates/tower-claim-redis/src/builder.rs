//! The store's settings.

use std::time::Duration;

use crate::check::Wanted;
use crate::target::Connection;

/// Builds a [`RedisStore`](crate::RedisStore). Made by [`RedisStore::builder`](crate::RedisStore::builder).
///
/// Say where the server is: [`url`](Self::url), [`cluster`](Self::cluster), [`sentinel`](Self::sentinel), or
/// a [`connection`](Self::connection) of your own.
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    pub(crate) url: Option<String>,
    pub(crate) cluster: Vec<String>,
    pub(crate) sentinel: Option<(Vec<String>, String)>,
    pub(crate) connection: Option<Connection>,
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) prefix: String,
    pub(crate) hash_tag: Option<String>,
    pub(crate) call_timeout: Duration,
    pub(crate) poll_step: Duration,
    pub(crate) wanted: Wanted,
}

impl Default for RedisStoreBuilder {
    fn default() -> Self {
        Self {
            url: None,
            cluster: Vec::new(),
            sentinel: None,
            connection: None,
            ca: None,
            prefix: "claim:".to_owned(),
            hash_tag: None,
            call_timeout: Duration::from_secs(2),
            poll_step: Duration::from_millis(500),
            wanted: Wanted {
                allow_eviction: false,
                durable_single_node: false,
            },
        }
    }
}

impl std::fmt::Debug for RedisStoreBuilder {
    /// Without the urls: they may bear passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("hash_tag", &self.hash_tag)
            .field("call_timeout", &self.call_timeout)
            .field("poll_step", &self.poll_step)
            .finish_non_exhaustive()
    }
}

fn owned<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> Vec<String> {
    urls.into_iter().map(Into::into).collect()
}

impl RedisStoreBuilder {
    /// One server: `redis://user:password@host:6379/0`, `rediss://` for TLS (feature `tls`),
    /// `unix:///path/to/socket`. Default: none.
    ///
    /// Beside [`sentinel`](Self::sentinel) it says the user, password, database and TLS of the servers they
    /// name; its host is not used. Beside [`connection`](Self::connection) it serves heartbeats and
    /// notifications.
    ///
    /// ```no_run
    /// # use tower_claim_redis::RedisStore;
    /// # async fn connect() -> Result<(), tower_claim_redis::ConnectError> {
    /// let store = RedisStore::builder().url("redis://app:secret@10.0.0.1:6379/2").connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// A cluster, by some of its nodes. Default: none.
    ///
    /// ```no_run
    /// # use tower_claim_redis::RedisStore;
    /// # async fn connect() -> Result<(), tower_claim_redis::ConnectError> {
    /// let store = RedisStore::builder()
    ///     .cluster(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"])
    ///     .hash_tag("orders")
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn cluster<S: Into<String>>(mut self, urls: impl IntoIterator<Item = S>) -> Self {
        self.cluster = owned(urls);
        self
    }

    /// The primary of this name, as sentinels know it; found anew after each failover. Default: none. User
    /// and password in these urls are the sentinels'; those of the servers come from [`url`](Self::url).
    ///
    /// ```no_run
    /// # use tower_claim_redis::RedisStore;
    /// # async fn connect() -> Result<(), tower_claim_redis::ConnectError> {
    /// let store = RedisStore::builder()
    ///     .sentinel(["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"], "mymaster")
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn sentinel<S: Into<String>>(
        mut self,
        urls: impl IntoIterator<Item = S>,
        name: impl Into<String>,
    ) -> Self {
        self.sentinel = Some((owned(urls), name.into()));
        self
    }

    /// A connection of your own: a [`ConnectionManager`](redis::aio::ConnectionManager), a
    /// [`MultiplexedConnection`](redis::aio::MultiplexedConnection) (once broken it stays broken) or a
    /// [`ClusterConnection`](redis::cluster_async::ClusterConnection). Default: none, the store makes its own.
    ///
    /// **Say [`url`](Self::url), [`cluster`](Self::cluster) or [`sentinel`](Self::sentinel) beside it.** With
    /// the connection alone, heartbeats go over it and stall with your runtime
    /// (`capabilities().keeper` is `Shared`), and whoever waits is woken by the poll only.
    ///
    /// Whether both lead to the same database is tried when it connects.
    ///
    /// Its own response timeout (500 ms where you have said nothing else) should be off, or above
    /// [`call_timeout`](Self::call_timeout).
    ///
    /// ```no_run
    /// # use tower_claim_redis::{ConnectError, RedisStore};
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let url = "redis://127.0.0.1:6379";
    /// let manager = redis::Client::open(url)?.get_connection_manager().await?;
    /// let store = RedisStore::builder().connection(manager).url(url).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn connection(mut self, connection: impl Into<Connection>) -> Self {
        self.connection = Some(connection.into());
        self
    }

    /// The certificate authority that signed the server's certificate, as PEM. Default: the well-known ones
    /// of the web. Needs the feature `tls`.
    ///
    /// ```no_run
    /// # use tower_claim_redis::RedisStore;
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder()
    ///     .url("rediss://redis.internal:6379")
    ///     .ca_certificate(std::fs::read("ca.pem")?)
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// What the name of each key in Redis begins with: 1 to 64 visible ASCII characters without braces.
    /// Default: `claim:`. Two applications over one database choose two.
    ///
    /// ```no_run
    /// # use tower_claim_redis::RedisStore;
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .prefix("shop:claim:")
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Puts every key of this store into one slot of a cluster, named by `{tag}` behind the prefix: then
    /// several keys can be claimed at once. Default: none; keys spread over the cluster, and claims of
    /// several are refused when a layer is built. It is part of every key's name: all instances say the same.
    pub fn hash_tag(mut self, tag: impl Into<String>) -> Self {
        self.hash_tag = Some(tag.into());
        self
    }

    /// How long a call may take, connecting included: 1 ms to 1 h. Default: 2 s. Past it the call has failed: as
    /// `Unavailable` while there was no connection, as `Ambiguous` once it was sent.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tower_claim_redis::RedisStore;
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .call_timeout(Duration::from_millis(500))
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = limit;
        self
    }

    /// How often somebody who waits looks, in case the notification was lost: 1 ms to 1 h. Default:
    /// 500 ms.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tower_claim_redis::RedisStore;
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .poll_step(Duration::from_millis(100))
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn poll_step(mut self, step: Duration) -> Self {
        self.poll_step = step;
        self
    }

    /// Takes a Redis that may evict records (`maxmemory` with a policy other than `noeviction`). Default:
    /// refused. A held record that is evicted is granted again; fences stop the first owner, nothing stops
    /// a finished request from running again.
    ///
    /// ```no_run
    /// # use tower_claim_redis::RedisStore;
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .allow_eviction()
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn allow_eviction(mut self) -> Self {
        self.wanted.allow_eviction = true;
        self
    }

    /// Says that this Redis does not forget what it answered: one server with `appendonly yes`,
    /// `appendfsync always`, no eviction, and nobody promotes a replica of it. Checked when it connects,
    /// as far as Redis tells. Then [`LapsePolicy::Hold`](tower_claim::LapsePolicy::Hold) and the point of no
    /// return can be used. Default: Redis may forget.
    ///
    /// ```no_run
    /// # use tower_claim_redis::RedisStore;
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .durable_single_node()
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn durable_single_node(mut self) -> Self {
        self.wanted.durable_single_node = true;
        self
    }
}
