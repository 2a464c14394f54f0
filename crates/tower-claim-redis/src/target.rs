//! Where the server is, and how connections to it are made.

use std::time::Duration;

use redis::aio::{ConnectionManager, MultiplexedConnection, PubSub};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, RedisError, RedisResult, Value,
};

use crate::ConnectError;

/// Calls that wait for the socket at once. The client's own 50 is few where hundreds of claims meet.
const QUEUE: usize = 1024;

/// Milliseconds between the cluster client's repeats while a slot moves or a replica is promoted, at least
/// and at most. Its own 1,280 at least would spend a call's time on one repeat.
const PAUSES: (u64, u64) = (10, 200);

/// A connection of the user's own, for [`RedisStoreBuilder::connection`](crate::RedisStoreBuilder::connection).
#[derive(Clone)]
#[non_exhaustive]
pub enum Connection {
    /// To one server; makes itself anew when it breaks.
    Manager(ConnectionManager),
    /// To one server; once it is broken it stays broken.
    Multiplexed(MultiplexedConnection),
    /// To a cluster.
    Cluster(ClusterConnection),
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Manager(_) => "Manager",
            Self::Multiplexed(_) => "Multiplexed",
            Self::Cluster(_) => "Cluster",
        })
    }
}

impl From<ConnectionManager> for Connection {
    fn from(connection: ConnectionManager) -> Self {
        Self::Manager(connection)
    }
}

impl From<MultiplexedConnection> for Connection {
    fn from(connection: MultiplexedConnection) -> Self {
        Self::Multiplexed(connection)
    }
}

impl From<ClusterConnection> for Connection {
    fn from(connection: ClusterConnection) -> Self {
        Self::Cluster(connection)
    }
}

impl Connection {
    pub(crate) async fn ask(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Manager(connection) => command.query_async(connection).await,
            Self::Multiplexed(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}

/// How to reach the server. Holds no connection, so it serves any runtime.
#[derive(Clone)]
pub(crate) enum Target {
    Node(Client),
    Cluster {
        client: Box<ClusterClient>,
        nodes: Vec<Client>,
    },
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        name: String,
        /// User, password, database and TLS of the server; its address is the sentinels' to tell.
        server: Option<ConnectionInfo>,
        ca: Option<Vec<u8>>,
    },
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

fn info(setting: &'static str, url: &str) -> Result<ConnectionInfo, ConnectError> {
    url.into_connection_info().map_err(|error| {
        let scheme = url.split(':').next().unwrap_or_default();
        let mend = match scheme {
            "rediss" | "valkeys" if !cfg!(feature = "tls") => {
                "TLS is the crate's feature `tls`, which is off".to_owned()
            }
            _ => format!(
                "{error}; write redis://user:password@host:6379/0, rediss:// for TLS or unix:///path"
            ),
        };
        ConnectError::config(setting, mend)
    })
}

fn infos(setting: &'static str, urls: &[String]) -> Result<Vec<ConnectionInfo>, ConnectError> {
    let infos: Result<Vec<_>, _> = urls.iter().map(|url| info(setting, url)).collect();
    match infos {
        Ok(infos) if infos.is_empty() => {
            Err(ConnectError::config(setting, "name at least one url"))
        }
        infos => infos,
    }
}

fn client(info: ConnectionInfo, ca: Option<&[u8]>) -> Result<Client, ConnectError> {
    #[cfg(feature = "tls")]
    if let ConnectionAddr::TcpTls { .. } = info.addr() {
        let certificates = tls::certificates(ca);
        return Client::build_with_tls(info, certificates)
            .map_err(|error| ConnectError::config("ca_certificate", error.to_string()));
    }
    let _ = ca;
    Client::open(info).map_err(|error| ConnectError::config("url", error.to_string()))
}

impl Target {
    pub(crate) fn node(url: &str, ca: Option<&[u8]>) -> Result<Self, ConnectError> {
        Ok(Self::Node(client(info("url", url)?, ca)?))
    }

    pub(crate) fn cluster(urls: &[String], ca: Option<&[u8]>) -> Result<Self, ConnectError> {
        let infos = infos("cluster", urls)?;
        let builder = ClusterClientBuilder::new(infos.clone())
            .min_retry_wait(PAUSES.0)
            .max_retry_wait(PAUSES.1);
        #[cfg(feature = "tls")]
        let builder = match infos
            .iter()
            .any(|info| matches!(info.addr(), ConnectionAddr::TcpTls { .. }))
        {
            true => builder.certs(tls::certificates(ca)),
            false => builder,
        };
        let cluster = builder
            .build()
            .map_err(|error| ConnectError::config("cluster", error.to_string()))?;
        let nodes: Result<Vec<_>, _> = infos.into_iter().map(|info| client(info, ca)).collect();
        Ok(Self::Cluster {
            client: Box::new(cluster),
            nodes: nodes?,
        })
    }

    pub(crate) fn sentinel(
        urls: &[String],
        name: String,
        server: Option<&str>,
        ca: Option<&[u8]>,
    ) -> Result<Self, ConnectError> {
        Ok(Self::Sentinel {
            sentinels: infos("sentinel", urls)?,
            name,
            server: server.map(|url| info("url", url)).transpose()?,
            ca: ca.map(<[u8]>::to_vec),
        })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster { .. })
    }

    /// For people: addresses, no passwords.
    pub(crate) fn name(&self) -> String {
        let all = |infos: &mut dyn Iterator<Item = &ConnectionInfo>| {
            let names: Vec<_> = infos.map(|info| info.addr().to_string()).collect();
            names.join(", ")
        };
        match self {
            Self::Node(client) => client.get_connection_info().addr().to_string(),
            Self::Cluster { nodes, .. } => all(&mut nodes.iter().map(Client::get_connection_info)),
            Self::Sentinel {
                sentinels, name, ..
            } => format!("`{name}` of the sentinels {}", all(&mut sentinels.iter())),
        }
    }

    /// Connects on the runtime that polls this.
    pub(crate) async fn open(&self, within: Duration) -> RedisResult<Connection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(within))
            // The call's own limit, which also says what a missing answer means.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        let one = async |client: &Client| {
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map(Connection::Multiplexed)
        };
        match self {
            Self::Node(client) => one(client).await,
            Self::Sentinel { .. } => one(&self.ask_sentinels().await?).await,
            Self::Cluster { client, .. } => {
                let config = redis::cluster::ClusterConfig::new()
                    .set_connection_timeout(within)
                    // A node that hangs: the client asks for the map anew instead of waiting.
                    .set_response_timeout(within);
                let connection = client.get_async_connection_with_config(config).await?;
                Ok(Connection::Cluster(connection))
            }
        }
    }

    /// A connection for notifications, to any node of a cluster.
    pub(crate) async fn open_pubsub(&self) -> RedisResult<PubSub> {
        match self {
            Self::Node(client) => client.get_async_pubsub().await,
            Self::Sentinel { .. } => self.ask_sentinels().await?.get_async_pubsub().await,
            Self::Cluster { nodes, .. } => {
                let mut last = None;
                for node in nodes {
                    match node.get_async_pubsub().await {
                        Ok(pubsub) => return Ok(pubsub),
                        Err(error) => last = Some(error),
                    }
                }
                Err(last.unwrap_or_else(|| RedisError::from((ErrorKind::Client, "no nodes"))))
            }
        }
    }

    async fn ask_sentinels(&self) -> RedisResult<Client> {
        let Self::Sentinel {
            sentinels,
            name,
            server,
            ca,
        } = self
        else {
            return Err((ErrorKind::Client, "no sentinels").into());
        };
        let addresses: Vec<ConnectionAddr> =
            sentinels.iter().map(|info| info.addr().clone()).collect();
        let kind = SentinelServerType::Master;
        let mut builder = SentinelClientBuilder::new(addresses, name.clone(), kind)?;
        if let Some(first) = sentinels.first() {
            let settings = first.redis_settings();
            if let Some(user) = settings.username() {
                builder = builder.set_client_to_sentinel_username(user);
            }
            if let Some(password) = settings.password() {
                builder = builder.set_client_to_sentinel_password(password);
            }
        }
        if let Some(server) = server {
            let settings = server.redis_settings();
            builder = builder.set_client_to_redis_db(settings.db());
            if let Some(user) = settings.username() {
                builder = builder.set_client_to_redis_username(user);
            }
            if let Some(password) = settings.password() {
                builder = builder.set_client_to_redis_password(password);
            }
            #[cfg(feature = "tls")]
            if let ConnectionAddr::TcpTls { .. } = server.addr() {
                builder = builder
                    .set_client_to_redis_tls_mode(redis::TlsMode::Secure)
                    .set_client_to_redis_certificates(tls::certificates(ca.as_deref()));
            }
        }
        #[cfg(feature = "tls")]
        if let Some(ConnectionAddr::TcpTls { .. }) = sentinels.first().map(ConnectionInfo::addr) {
            builder = builder.set_client_to_sentinel_certificates(tls::certificates(ca.as_deref()));
        }
        let _ = ca;
        builder.build()?.async_get_client().await
    }
}

#[cfg(feature = "tls")]
mod tls {
    pub(super) fn certificates(ca: Option<&[u8]>) -> redis::TlsCertificates {
        // The client builds its TLS settings with the process' provider, and panics where two are linked
        // and none was chosen.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        redis::TlsCertificates {
            client_tls: None,
            root_cert: ca.map(<[u8]>::to_vec),
        }
    }
}
