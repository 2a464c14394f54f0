//! The store's settings.

use std::fmt;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio_postgres::Config;

use crate::Names;
#[cfg(feature = "tls")]
use crate::connect;

/// Builds a [`PostgresStore`](crate::PostgresStore). Made by [`builder`](crate::PostgresStore::builder).
///
/// It needs one of [`url`](Self::url), [`config`](Self::config) and [`pool`](Self::pool).
#[derive(Clone)]
#[must_use = "it does nothing before `connect` or `migrate`"]
pub struct PostgresStoreBuilder {
    pub(crate) config: Option<Result<Config, String>>,
    pub(crate) pool: Option<Pool>,
    pub(crate) listen: Option<Result<Config, String>>,
    pub(crate) listens: bool,
    pub(crate) schema: String,
    pub(crate) prefix: String,
    pub(crate) pool_size: usize,
    pub(crate) pool_wait: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) poll: Duration,
    pub(crate) prepared: bool,
    pub(crate) purge_every: Option<Duration>,
    pub(crate) async_failover: Option<bool>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Result<rustls::ClientConfig, String>>,
}

impl Default for PostgresStoreBuilder {
    fn default() -> Self {
        let names = Names::default();
        Self {
            config: None,
            pool: None,
            listen: None,
            listens: true,
            schema: names.schema().to_owned(),
            prefix: names.prefix().to_owned(),
            pool_size: 8,
            pool_wait: Duration::from_secs(1),
            call_timeout: Duration::from_secs(2),
            poll: Duration::from_millis(500),
            prepared: false,
            purge_every: Some(Duration::from_secs(60)),
            async_failover: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

fn parse(url: &str) -> Result<Config, String> {
    url.parse::<Config>().map_err(|error| {
        let why = std::error::Error::source(&error).map_or(String::new(), |why| format!(": {why}"));
        format!("{error}{why}; write postgres://USER:PASSWORD@HOST:5432/DATABASE")
    })
}

impl PostgresStoreBuilder {
    /// Where the server, or a pooler before it, is: `postgres://USER:PASSWORD@HOST:5432/DATABASE`. The keeper
    /// connects there too. No default.
    pub fn url(mut self, url: &str) -> Self {
        self.config = Some(parse(url));
        self
    }

    /// As [`url`](Self::url), in the driver's words. With a [`pool`](Self::pool): for the keeper's own
    /// connections.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(Ok(config));
        self
    }

    /// Your own pool. Give a [`url`](Self::url) as well, for the keeper's connections: a connection is bound
    /// to the runtime that made it, and heartbeats should not stall with yours. Without one they share the
    /// pool, and `capabilities().keeper` says so; and nobody listens, so that whoever waits polls.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// The schema of the tables. Default: `tower_claim`.
    pub fn schema(mut self, schema: &str) -> Self {
        schema.clone_into(&mut self.schema);
        self
    }

    /// What the names of tables and functions begin with. Default: nothing.
    pub fn table_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Connections at most, made as they are needed; the keeper has 3 of its own, and one listens. Default:
    /// 8. Not with a [`pool`](Self::pool).
    pub fn pool_size(mut self, connections: usize) -> Self {
        self.pool_size = connections;
        self
    }

    /// How long a call waits for a connection before it is refused, within the call timeout. Default: 1 s.
    pub fn pool_wait(mut self, wait: Duration) -> Self {
        self.pool_wait = wait;
        self
    }

    /// How long a call may take in all; then its answer counts as lost. A statement waits for a locked row for
    /// half of it. Default: 2 s.
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = limit;
        self
    }

    /// How often whoever waits looks, where no notification comes. Default: 500 ms.
    pub fn poll_step(mut self, step: Duration) -> Self {
        self.poll = step;
        self
    }

    /// Whether one connection listens for notifications. Default: yes, where there is a URL.
    pub fn listen(mut self, listens: bool) -> Self {
        self.listens = listens;
        self
    }

    /// Where to listen, past a pooler that gives each transaction another session. Default: the
    /// [`url`](Self::url); through such a pooler nothing is heard there, and whoever waits polls.
    pub fn listen_url(mut self, url: &str) -> Self {
        self.listen = Some(parse(url));
        self
    }

    /// Prepares statements by name and keeps them with the connection: saves the parsing of a short text, and
    /// breaks behind a pooler that does not track them. Default: no.
    pub fn prepared_statements(mut self, prepared: bool) -> Self {
        self.prepared = prepared;
        self
    }

    /// How often records with nothing left to say are dropped, in small batches by a task on the runtime that
    /// connects, which ends with the store. `None`: only by [`purge_ended`](crate::PostgresStore::purge_ended). Default: every minute.
    pub fn purge_every(mut self, pause: Option<Duration>) -> Self {
        self.purge_every = pause;
        self
    }

    /// Whether a replica may be promoted that lacks the last commits (asynchronous replication). Then an answer
    /// may be forgotten, and where that must not be, a layer refuses to build.
    ///
    /// Default: what the server shows when the store connects. It has replicas (they stream from it, or have a
    /// physical replication slot), and does not wait for them (`synchronous_standby_names` is empty, or
    /// `synchronous_commit` is `off` or `local`): yes, with a warning. Else no. Say `false` where its replicas
    /// are for reading and are never promoted; say `true` where one may come later.
    pub fn asynchronous_failover(mut self, may_happen: bool) -> Self {
        self.async_failover = Some(may_happen);
        self
    }

    /// TLS that trusts these certificates, in PEM. Connections without TLS are refused then.
    #[cfg(feature = "tls")]
    pub fn tls_root(mut self, pem: &[u8]) -> Self {
        self.tls = Some(connect::root(pem));
        self
    }

    /// TLS by these settings. Connections without TLS are refused then.
    #[cfg(feature = "tls")]
    pub fn tls_config(mut self, config: rustls::ClientConfig) -> Self {
        self.tls = Some(Ok(config));
        self
    }
}

impl fmt::Debug for PostgresStoreBuilder {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStoreBuilder")
            .field("schema", &self.schema)
            .field("table_prefix", &self.prefix)
            .field("pool_size", &self.pool_size)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}
