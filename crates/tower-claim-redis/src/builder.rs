//! The store's settings.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tower_claim::engine::EngineClock;
use tower_claim::store::{Capabilities, Event, KeeperConnection, MultiKey};

use crate::check::{Found, Wanted, inspect};
use crate::link::Link;
use crate::target::{Connection, Target};
use crate::{ConnectError, Inner, RedisStore};

/// Builds a [`RedisStore`]. Made by [`RedisStore::builder`].
///
/// Say where the server is: [`url`](Self::url), [`cluster`](Self::cluster), [`sentinel`](Self::sentinel), or
/// a [`connection`](Self::connection) of your own.
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    url: Option<String>,
    cluster: Vec<String>,
    sentinel: Option<(Vec<String>, String)>,
    connection: Option<Connection>,
    ca: Option<Vec<u8>>,
    prefix: String,
    hash_tag: Option<String>,
    call_timeout: Duration,
    poll_step: Duration,
    wanted: Wanted,
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
    /// Its own response timeout should be off, or above [`call_timeout`](Self::call_timeout).
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
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// What the name of each key in Redis begins with: 1 to 64 visible ASCII characters without braces.
    /// Default: `claim:`. Two applications over one database choose two.
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

    /// How long a call may take, connecting included. Default: 2 s. Past it the call has failed: as
    /// `Unavailable` while there was no connection, as `Ambiguous` once it was sent.
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = limit;
        self
    }

    /// How often somebody who waits looks, in case the notification was lost. Default: 500 ms.
    pub fn poll_step(mut self, step: Duration) -> Self {
        self.poll_step = step;
        self
    }

    /// Takes a Redis that may evict records (`maxmemory` with a policy other than `noeviction`). Default:
    /// refused. A held record that is evicted is granted again; fences stop the first owner, nothing stops
    /// a finished request from running again.
    pub fn allow_eviction(mut self) -> Self {
        self.wanted.allow_eviction = true;
        self
    }

    /// Says that this Redis does not forget what it answered: one server with `appendonly yes`,
    /// `appendfsync always`, no eviction, and nobody promotes a replica of it. Checked when it connects,
    /// as far as Redis tells. Then [`LapsePolicy::Hold`](tower_claim::LapsePolicy::Hold) and the point of no
    /// return can be used. Default: Redis may forget.
    pub fn durable_single_node(mut self) -> Self {
        self.wanted.durable_single_node = true;
        self
    }

    /// Connects, and asks the server whether it is fit: scripts, clock, eviction, kind.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], one line that says the mend.
    pub async fn connect(self) -> Result<RedisStore, ConnectError> {
        let prefix = self.full_prefix()?;
        for (setting, span) in [
            ("call_timeout", self.call_timeout),
            ("poll_step", self.poll_step),
        ] {
            if span < Duration::from_millis(1) {
                return Err(ConnectError::config(setting, "at least 1 ms"));
            }
        }
        let target = self.target()?.map(Arc::new);
        let clock = Arc::new(EngineClock::default());
        let server = target.as_ref().map_or_else(
            || "the connection handed in".to_owned(),
            |target| target.name(),
        );
        let limit = self.call_timeout;
        let mut connection = match (&self.connection, &target) {
            (Some(connection), _) => connection.clone(),
            (None, Some(target)) => match timeout(limit, target.open(limit)).await {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => return Err(ConnectError::unreachable(&server, error)),
                Err(_) => return Err(silent(&server, limit)),
            },
            (None, None) => {
                return Err(ConnectError::config(
                    "url",
                    "say where Redis is: url(\"redis://host:6379\"), cluster, sentinel or connection",
                ));
            }
        };
        let inspected = inspect(&mut connection, &server, self.wanted, &clock);
        let found = match timeout(limit, inspected).await {
            Ok(found) => found?,
            Err(_) => return Err(silent(&server, limit)),
        };
        let capabilities = self.capabilities(&connection, target.is_some(), found);
        let tagged = self.hash_tag.is_some();
        let (clock_too, prefix_too) = (Arc::clone(&clock), Arc::clone(&prefix));
        let link = match (self.connection, &target) {
            (None, Some(target)) => {
                let target = Arc::clone(target);
                Link::own(
                    target,
                    Some(connection),
                    limit,
                    clock_too,
                    prefix_too,
                    tagged,
                )
            }
            _ => Link::given(connection, limit, clock_too, prefix_too, tagged),
        };
        Ok(RedisStore {
            inner: Arc::new(Inner {
                link,
                target,
                tagged,
                prefix,
                clock,
                bells: Arc::default(),
                listener: Arc::default(),
                poll: self.poll_step,
                call_timeout: limit,
                capabilities,
            }),
        })
    }

    fn capabilities(&self, connection: &Connection, own: bool, found: Found) -> Capabilities {
        let mut capabilities = RedisStore::AT_BEST.with_durable(found.durable);
        if connection.is_cluster() && self.hash_tag.is_none() {
            capabilities = capabilities.with_multi_key(MultiKey::None);
        }
        if !own {
            capabilities = capabilities.with_keeper(KeeperConnection::Shared);
        }
        if !found.writes_through {
            capabilities = capabilities.with_weakened(Event::Restart, RedisStore::FORGETS);
        }
        if !self.wanted.durable_single_node {
            capabilities = capabilities.with_weakened(Event::Failover, RedisStore::FORGETS);
        }
        capabilities
    }

    fn target(&self) -> Result<Option<Target>, ConnectError> {
        if !cfg!(feature = "tls") && self.ca.is_some() {
            return Err(ConnectError::config(
                "ca_certificate",
                "TLS is the crate's feature `tls`, which is off",
            ));
        }
        let ca = self.ca.as_deref();
        let begins = b"-----BEGIN CERTIFICATE-----";
        if ca.is_some_and(|pem| !pem.windows(begins.len()).any(|part| part == begins)) {
            return Err(ConnectError::config(
                "ca_certificate",
                "no certificate in it: give the PEM text, which begins with `-----BEGIN CERTIFICATE-----`",
            ));
        }
        match (&self.url, self.cluster.as_slice(), &self.sentinel) {
            (Some(_), [_, ..], _) | (_, [_, ..], Some(_)) => Err(ConnectError::config(
                "cluster",
                "a cluster has no `url` and no `sentinel` beside it",
            )),
            (None, urls @ [_, ..], None) => Target::cluster(urls, ca).map(Some),
            (url, [], Some((urls, name))) => {
                Target::sentinel(urls, name.clone(), url.as_deref(), ca).map(Some)
            }
            (Some(url), [], None) => Target::node(url, ca).map(Some),
            (None, [], None) => Ok(None),
        }
    }

    fn full_prefix(&self) -> Result<Arc<str>, ConnectError> {
        let plain = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_graphic() && !b"{}".contains(&b))
        };
        if !(1..=64).contains(&self.prefix.len()) || !plain(&self.prefix) {
            return Err(ConnectError::config(
                "prefix",
                "1 to 64 visible ASCII characters without braces; a hash tag has a setting of its own",
            ));
        }
        Ok(match &self.hash_tag {
            None => Arc::from(self.prefix.as_str()),
            Some(tag) if (1..=64).contains(&tag.len()) && plain(tag) => {
                Arc::from(format!("{}{{{tag}}}:", self.prefix))
            }
            Some(_) => {
                return Err(ConnectError::config(
                    "hash_tag",
                    "1 to 64 visible ASCII characters without braces: they are put around it",
                ));
            }
        })
    }
}

fn silent(server: &str, limit: Duration) -> ConnectError {
    ConnectError::silent(
        server,
        format!("no answer within {limit:?}; is it a Redis server, and up?"),
    )
}
