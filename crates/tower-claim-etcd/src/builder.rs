//! How to connect.

use std::fmt;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tower_claim::{ConfigError, StoreError};

use crate::calls::Calls;
use crate::errors::Failed;
use crate::members::Members;
use crate::store::EtcdStore;

/// Builds an [`EtcdStore`]. Made by [`EtcdStore::builder`].
///
/// ```no_run
/// use std::time::Duration;
/// use tower_claim_etcd::EtcdStore;
///
/// # async fn connect() -> Result<(), tower_claim_etcd::ConnectError> {
/// let store = EtcdStore::builder()
///     .endpoints(["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"])
///     .user("shop", "secret")
///     .prefix("shop/claims")
///     .call_timeout(Duration::from_secs(1))
///     .connect()
///     .await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing before `connect`"]
pub struct EtcdStoreBuilder {
    config: Config,
}

#[derive(Clone)]
pub(crate) struct Config {
    endpoints: Vec<String>,
    client: Option<Client>,
    user: Option<(String, String)>,
    #[cfg(feature = "tls")]
    tls: Option<etcd_client::TlsOptions>,
    pub(crate) prefix: String,
    call_timeout: Duration,
    pub(crate) poll: Duration,
}

/// Why a store could not be connected.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting is wrong, however often it is tried.
    Config(ConfigError),
    /// etcd did not answer as it should.
    Store(StoreError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Config(error) => error.fmt(f),
            ConnectError::Store(StoreError::Unavailable(source)) => {
                write!(f, "etcd does not answer: {source}")
            }
            ConnectError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectError::Config(error) => Some(error),
            ConnectError::Store(error) => Some(error),
        }
    }
}

impl From<ConfigError> for ConnectError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<StoreError> for ConnectError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl EtcdStoreBuilder {
    pub(crate) fn new() -> Self {
        Self {
            config: Config {
                endpoints: Vec::new(),
                client: None,
                user: None,
                #[cfg(feature = "tls")]
                tls: None,
                prefix: "tower-claim".to_owned(),
                call_timeout: Duration::from_secs(2),
                poll: Duration::from_secs(1),
            },
        }
    }

    /// Members of the cluster, as `http://host:2379`. None by default: `connect` refuses, unless a
    /// [`client`](Self::client) is given.
    pub fn endpoints<E: Into<String>>(mut self, endpoints: impl IntoIterator<Item = E>) -> Self {
        let endpoints = endpoints.into_iter().map(Into::into);
        self.config.endpoints.extend(endpoints);
        self
    }

    /// A client of your own, for all calls but heartbeats. Heartbeats go over a connection of their own
    /// where [`endpoints`](Self::endpoints) are given too; else over this one, and then they stall with the
    /// runtime it was made on. None by default.
    ///
    /// **Its limit:** such a client spreads calls over its members by itself. One that stands still fails its
    /// share of them until the client finds it out, so give the client
    /// [`with_keep_alive`](etcd_client::ConnectOptions::with_keep_alive). A store that is given
    /// [`endpoints`](Self::endpoints) asks one member until it fails, and then the next.
    pub fn client(mut self, client: Client) -> Self {
        self.config.client = Some(client);
        self
    }

    /// Who we are. Nobody by default. The user needs read and write on the [`prefix`](Self::prefix).
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.config.user = Some((name.into(), password.into()));
        self
    }

    /// Trust and identity for `https` endpoints. By default none: an `https` endpoint needs it.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn tls(mut self, tls: etcd_client::TlsOptions) -> Self {
        self.config.tls = Some(tls);
        self
    }

    /// In front of every key in etcd: one store for all who use the same. `tower-claim` by default.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.prefix = prefix.into();
        self
    }

    /// How long one call may take, with all its trips. 2 seconds by default. Past it the answer counts as
    /// lost.
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.config.call_timeout = limit;
        self
    }

    /// How long a lost wake-up delays who waits for the end of a hold, at most. 1 second by default.
    pub fn poll(mut self, every: Duration) -> Self {
        self.config.poll = every;
        self
    }

    /// Connects, and asks etcd whether it is there, has a leader and lets us in.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] for a setting that cannot be; [`ConnectError::Store`] where etcd does not
    /// answer within the call timeout, or refuses.
    pub async fn connect(self) -> Result<EtcdStore, ConnectError> {
        self.config.check()?;
        EtcdStore::open(self.config, None).await
    }
}

impl Config {
    pub(crate) fn has_endpoints(&self) -> bool {
        !self.endpoints.is_empty()
    }

    /// With a connection of its own.
    pub(crate) fn for_keeper(&self) -> Self {
        Self {
            client: None,
            ..self.clone()
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.endpoints.is_empty() && self.client.is_none() {
            return Err(ConfigError::new(
                "endpoints",
                "none given: name a member of the cluster, as `http://host:2379`",
            ));
        }
        if let Some(bad) = self.endpoints.iter().find(|one| one.trim().is_empty()) {
            return Err(ConfigError::new(
                "endpoints",
                format!("{bad:?} is no endpoint: write `http://host:2379`"),
            ));
        }
        let legal = |b: u8| b.is_ascii_graphic();
        let prefix = self.prefix.as_bytes();
        let slashed = self.prefix.ends_with('/');
        if prefix.is_empty() || prefix.len() > 128 || slashed || !prefix.iter().copied().all(legal)
        {
            return Err(ConfigError::new(
                "prefix",
                "1 to 128 visible ASCII characters, without a `/` at the end",
            ));
        }
        if self.call_timeout < Duration::from_millis(10) {
            return Err(ConfigError::new(
                "call_timeout",
                "under 10 ms no call comes to its end: give 100 ms or more",
            ));
        }
        if self.poll < Duration::from_millis(10) {
            return Err(ConfigError::new(
                "poll",
                "under 10 ms it is a busy loop: give 100 ms or more",
            ));
        }
        Ok(())
    }

    pub(crate) async fn calls(&self) -> Result<Calls, ConnectError> {
        let limit = self.call_timeout;
        if let Some(client) = &self.client {
            let members = Members::new(vec![client.clone()], None);
            return Ok(Calls::new(members, limit));
        }
        let options = self.options();
        let mut clients = Vec::with_capacity(self.endpoints.len());
        for endpoint in &self.endpoints {
            // Without a user this makes no connection yet: it tells bad words from good ones.
            let client = Client::connect([endpoint.trim()], Some(options.clone())).await;
            clients.push(client.map_err(|error| match error {
                etcd_client::Error::InvalidUri(error) => {
                    let text = format!("{error}: write `http://host:2379`");
                    ConnectError::Config(ConfigError::new("endpoints", text))
                }
                etcd_client::Error::InvalidArgs(text) => {
                    ConnectError::Config(ConfigError::new("endpoints", text))
                }
                error => StoreError::unavailable(Failed::of(&error)).into(),
            })?);
        }
        Ok(Calls::new(Members::new(clients, self.user.clone()), limit))
    }

    fn options(&self) -> ConnectOptions {
        let limit = self.call_timeout;
        let options = ConnectOptions::new()
            .with_connect_timeout(limit)
            // A node that hangs is found out, though no call waits for it just now.
            .with_keep_alive(limit.max(Duration::from_secs(1)), limit)
            .with_keep_alive_while_idle(true)
            .with_auto_token_refresh(true);
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return options.with_tls(tls.clone());
        }
        options
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("endpoints", &self.endpoints)
            .field("own_client", &self.client.is_some())
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("prefix", &self.prefix)
            .field("call_timeout", &self.call_timeout)
            .field("poll", &self.poll)
            .finish_non_exhaustive()
    }
}
