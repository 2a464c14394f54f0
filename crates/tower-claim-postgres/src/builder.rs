//! The store's settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio_postgres::Config;
use tower_claim::engine::EngineClock;
use tower_claim::store::{Event, KeeperConnection, Promise, StoreTime};
use tower_claim::{ConfigError, StoreError};

use crate::calls::Calls;
use crate::link::{Link, Wire};
use crate::listener::{Listener, Task};
use crate::migrate::{self, SelfTest};
use crate::statement::Statements;
use crate::store::{Inner, PostgresStore};
use crate::{ConnectError, Names};

/// Builds a [`PostgresStore`]. Made by [`PostgresStore::builder`].
///
/// It needs one of [`url`](Self::url), [`config`](Self::config) and [`pool`](Self::pool).
#[derive(Clone)]
#[must_use = "it does nothing before `connect` or `migrate`"]
pub struct PostgresStoreBuilder {
    config: Option<Result<Config, String>>,
    pool: Option<Pool>,
    listen: Option<Result<Config, String>>,
    listens: bool,
    schema: String,
    prefix: String,
    pool_size: usize,
    pool_wait: Duration,
    call_timeout: Duration,
    poll: Duration,
    prepared: bool,
    purge_every: Option<Duration>,
    async_failover: bool,
    #[cfg(feature = "tls")]
    tls: Option<Result<rustls::ClientConfig, String>>,
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
            async_failover: false,
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

    /// Connections at most, made as they are needed; the keeper has 2 of its own, and one listens. Default:
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
    /// connects, which ends with the store. `None`: only by [`PostgresStore::purge`]. Default: every minute.
    pub fn purge_every(mut self, pause: Option<Duration>) -> Self {
        self.purge_every = pause;
        self
    }

    /// Says that a replica may be promoted that lacks the last commits (asynchronous replication). Then an
    /// answer may be forgotten, and where that must not be, a layer refuses to build. Default: no.
    pub fn asynchronous_failover(mut self, may_happen: bool) -> Self {
        self.async_failover = may_happen;
        self
    }

    /// TLS that trusts these certificates, in PEM. Connections without TLS are refused then.
    #[cfg(feature = "tls")]
    pub fn tls_root(mut self, pem: &[u8]) -> Self {
        self.tls = Some(root(pem));
        self
    }

    /// TLS by these settings. Connections without TLS are refused then.
    #[cfg(feature = "tls")]
    pub fn tls_config(mut self, config: rustls::ClientConfig) -> Self {
        self.tls = Some(Ok(config));
        self
    }

    fn names(&self) -> Result<Names, ConfigError> {
        Names::new(&self.schema, &self.prefix)
    }

    fn wire(&self) -> Result<Wire, ConfigError> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let tls = tls.clone();
            let tls = tls.map_err(|problem| ConfigError::new("tls_root", problem))?;
            return Ok(Wire::Tls(tokio_postgres_rustls::MakeRustlsConnect::new(
                tls,
            )));
        }
        Ok(Wire::Plain)
    }

    fn link(&self, config: &Option<Result<Config, String>>) -> Result<Option<Link>, ConfigError> {
        match config {
            None => Ok(None),
            Some(Ok(config)) => {
                let mut config = config.clone();
                if config.get_connect_timeout().is_none() {
                    config.connect_timeout(self.pool_wait);
                }
                Link::new(config, self.wire()?).map(Some)
            }
            Some(Err(problem)) => Err(ConfigError::new("url", problem.clone())),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let spans = [
            ("call_timeout", self.call_timeout),
            ("pool_wait", self.pool_wait),
            ("poll_step", self.poll),
        ];
        for (name, span) in spans {
            if span < Duration::from_millis(2) {
                return Err(ConfigError::new(name, "at least 2 ms"));
            }
        }
        if self.pool_size == 0 {
            return Err(ConfigError::new("pool_size", "at least 1"));
        }
        if self.purge_every.is_some_and(|pause| pause.is_zero()) {
            return Err(ConfigError::new("purge_every", "a pause, or `None`"));
        }
        Ok(())
    }

    /// The pool, and how the keeper connects.
    fn connections(&self) -> Result<(Pool, Option<Link>), ConfigError> {
        self.check()?;
        let link = self.link(&self.config)?;
        let pool = match (&self.pool, &link) {
            (Some(pool), _) => pool.clone(),
            (None, Some(link)) => link.pool(self.pool_size)?,
            (None, None) => {
                return Err(ConfigError::new("url", "give `url`, `config` or `pool`"));
            }
        };
        Ok((pool, link))
    }

    fn calls(&self, pool: Pool) -> Calls {
        Calls {
            pool,
            pool_wait: self.pool_wait,
            timeout: self.call_timeout,
            prepared: self.prepared,
        }
    }

    /// Makes the tables where they are missing; changes nothing where all is in place. Several processes may
    /// do so at once.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: a bad setting, no server, no right to create, tables that are foreign or of a newer
    /// version.
    pub async fn migrate(&self) -> Result<(), ConnectError> {
        let names = self.names()?;
        let (pool, _) = self.connections()?;
        let client = self.calls(pool).client().await?;
        migrate::migrate(&**client, &names).await
    }

    /// Connects, and asks the server what it is.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: a bad setting, no server, a server that takes no writes, missing rights, tables that
    /// are missing, foreign or of a newer version.
    pub async fn connect(self) -> Result<PostgresStore, ConnectError> {
        let names = self.names()?;
        let (pool, link) = self.connections()?;
        let calls = self.calls(pool);
        let clock = Arc::new(EngineClock::default());
        let told = async {
            let client = calls.client().await?;
            let sent = clock.sending();
            let told = migrate::self_test(&**client, &names).await?;
            Ok::<_, ConnectError>((sent, told))
        };
        // Four short statements.
        let told = tokio::time::timeout(4 * self.call_timeout, told).await;
        let (sent, told) = told.map_err(|_| StoreError::unavailable("no answer in time"))??;
        clock.observe(sent, time(told.now));
        let listen = match (self.listens, &self.listen) {
            (false, _) => None,
            (true, Some(_)) => self.link(&self.listen)?,
            (true, None) => link.clone(),
        };
        let statements = Statements::new(&names).with_lock_wait(self.call_timeout / 2);
        let capabilities = self.capabilities(link.is_some(), told);
        let purge_every = self.purge_every;
        let store = PostgresStore::from_inner(Arc::new_cyclic(|inner| Inner {
            calls,
            link,
            statements,
            clock,
            poll: self.poll,
            listener: Arc::new(Listener::new(listen)),
            capabilities,
            _purger: purge_every
                .map(|pause| Task::spawn(PostgresStore::purge_for_life(inner.clone(), pause))),
        }));
        Ok(store)
    }

    fn capabilities(&self, own: bool, told: SelfTest) -> tower_claim::store::Capabilities {
        let mut capabilities = PostgresStore::CAPABILITIES;
        let forgets = &[Promise::OneOwner, Promise::OneResult];
        if !own {
            capabilities = capabilities.with_keeper(KeeperConnection::Shared);
        }
        if told.answers_early {
            tracing::warn!(
                "`synchronous_commit` is off: a restart of the server may forget what it answered"
            );
            capabilities = capabilities.with_weakened(Event::Restart, forgets);
        }
        if told.unsafe_disk {
            tracing::warn!("`fsync` is off: an end of the machine may lose every promise");
        }
        if self.async_failover {
            capabilities = capabilities.with_weakened(Event::Failover, forgets);
        }
        capabilities
    }
}

fn time(micros: i64) -> StoreTime {
    StoreTime::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(feature = "tls")]
fn root(pem: &[u8]) -> Result<rustls::ClientConfig, String> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("no PEM: {error}"))?;
        let added = roots.add(certificate);
        added.map_err(|error| format!("a certificate that cannot be trusted: {error}"))?;
    }
    if roots.is_empty() {
        return Err(
            "no certificate in it: give PEM that begins with -----BEGIN CERTIFICATE-----"
                .to_owned(),
        );
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
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
