//! From settings to a store.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio_postgres::Config;
use tower_claim::engine::EngineClock;
use tower_claim::store::{Capabilities, Event, KeeperConnection, StoreTime};
use tower_claim::{ConfigError, StoreError};

use crate::calls::Calls;
use crate::link::{Link, Wire};
use crate::listener::{Listener, Task};
use crate::migrate;
use crate::self_test::{SelfTest, self_test};
use crate::statement::Statements;
use crate::store::{Inner, PostgresStore};
use crate::stranger;
use crate::{ConnectError, Names, PostgresStoreBuilder};

/// For a setting that is a wait: below it nothing can be answered, above it nothing is bounded.
const WAITS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(2)..=Duration::from_secs(3_600);
/// More than any server takes.
const CONNECTIONS: usize = 10_000;
/// The tables of a migration may be locked for a while; nothing waits for ever.
const MIGRATION: Duration = Duration::from_secs(60);

impl PostgresStoreBuilder {
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
            if !WAITS.contains(&span) {
                return Err(ConfigError::new(name, "2 ms to 1 hour"));
            }
        }
        if !(1..=CONNECTIONS).contains(&self.pool_size) {
            return Err(ConfigError::new("pool_size", "1 to 10,000"));
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
        let (pool, link) = self.connections()?;
        let client = first(&self.calls(pool), link.as_ref()).await?;
        let migrated = tokio::time::timeout(MIGRATION, migrate::migrate(&**client, &names));
        migrated.await.unwrap_or_else(|_| {
            // It may be at work still: not for the next user of a pool.
            drop(Object::take(client));
            Err(
                StoreError::ambiguous(format!("no answer within {MIGRATION:?}: migrate again"))
                    .into(),
            )
        })
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
        let client = first(&calls, link.as_ref()).await?;
        let sent = clock.sending();
        // Three short statements.
        let limit = 3 * self.call_timeout;
        let told = tokio::time::timeout(limit, self_test(&**client, &names)).await;
        let Ok(told) = told else {
            // It may answer still: not the next user of a pool.
            drop(Object::take(client));
            return Err(StoreError::unavailable(format!(
                "the server took the connection, and did not say within {limit:?} what it is"
            ))
            .into());
        };
        let told = told?;
        drop(client);
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
            beats: calls.clone(),
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

    fn capabilities(&self, own: bool, told: SelfTest) -> Capabilities {
        let mut capabilities = PostgresStore::CAPABILITIES;
        if !own {
            capabilities = capabilities.with_keeper(KeeperConnection::Shared);
        }
        if let Some(why) = told.crash_forgets {
            tracing::warn!("{why}: after a crash the server may have forgotten what it answered");
            capabilities = capabilities.with_weakened(Event::Restart, PostgresStore::FORGETS);
        }
        if self.async_failover.is_none() && told.replicas_lag {
            tracing::warn!(
                "the server has replicas and does not wait for them: a promoted one may lack what was \
                 answered. Set `synchronous_standby_names`, or say by `asynchronous_failover` whether \
                 one may be promoted"
            );
        }
        if self.async_failover.unwrap_or(told.replicas_lag) {
            capabilities = capabilities.with_weakened(Event::Failover, PostgresStore::FORGETS);
        }
        capabilities
    }
}

/// The first connection: one that fails tells who is there instead.
async fn first(calls: &Calls, link: Option<&Link>) -> Result<Object, ConnectError> {
    match calls.client().await {
        Ok(client) => Ok(client),
        Err(error) => {
            let addresses = link.map(Link::addresses).unwrap_or_default();
            Err(stranger::tell(&addresses, error).await)
        }
    }
}

fn time(micros: i64) -> StoreTime {
    StoreTime::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(feature = "tls")]
pub(crate) fn root(pem: &[u8]) -> Result<rustls::ClientConfig, String> {
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
