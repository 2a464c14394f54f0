//! How to connect.

use std::fmt;
use std::future::poll_fn;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Socket};
use tower_claim::ConfigError;

use crate::stranger::Address;

/// Settings for connections, which are made on the runtime that asks for them.
#[derive(Clone)]
pub(crate) struct Link {
    config: Config,
    wire: Wire,
}

#[derive(Clone)]
pub(crate) enum Wire {
    Plain,
    #[cfg(feature = "tls")]
    Tls(tokio_postgres_rustls::MakeRustlsConnect),
}

/// What a connection's server says of itself.
pub(crate) type Messages = BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>;

impl Link {
    pub(crate) fn new(mut config: Config, wire: Wire) -> Result<Self, ConfigError> {
        if matches!(wire, Wire::Plain) && config.get_ssl_mode() == SslMode::Require {
            return Err(ConfigError::new(
                "url",
                "it requires TLS: enable the feature `tls` and give `tls_root` or `tls_config`",
            ));
        }
        if config.get_application_name().is_none() {
            config.application_name("tower-claim");
        }
        if let (Wire::Plain, SslMode::Prefer) = (&wire, config.get_ssl_mode()) {
            config.ssl_mode(SslMode::Disable);
        }
        #[cfg(feature = "tls")]
        if matches!(wire, Wire::Tls(_)) {
            // "prefer" would fall back to plain text where somebody cuts the handshake.
            config.ssl_mode(SslMode::Require);
        }
        Ok(Self { config, wire })
    }

    pub(crate) fn pool(&self, size: usize) -> Result<Pool, ConfigError> {
        let fast = ManagerConfig {
            // A check by a statement would be a trip of its own for each call.
            recycling_method: RecyclingMethod::Fast,
        };
        let config = self.config.clone();
        let manager = match &self.wire {
            Wire::Plain => Manager::from_config(config, NoTls, fast),
            #[cfg(feature = "tls")]
            Wire::Tls(tls) => Manager::from_config(config, tls.clone(), fast),
        };
        let pool = Pool::builder(manager).max_size(size).build();
        pool.map_err(|error| ConfigError::new("pool_size", error.to_string()))
    }

    /// Where it connects by TCP.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        let named = |host: &Host| match host {
            Host::Tcp(name) => Some(name.clone()),
            // A socket in the file system has no stranger behind it.
            _ => None,
        };
        let hosts: Vec<_> = self.config.get_hosts().iter().map(named).collect();
        let direct = self.config.get_hostaddrs().iter();
        let direct: Vec<_> = direct.map(|ip| Some(ip.to_string())).collect();
        let ports = self.config.get_ports();
        let hosts = if direct.is_empty() { hosts } else { direct };
        let port = |nth| ports.get(nth).or(ports.first()).copied().unwrap_or(5432);
        let all = hosts.into_iter().enumerate();
        all.filter_map(|(nth, host)| Some((host?, port(nth))))
            .collect()
    }

    /// One connection. The client works while the messages are read.
    pub(crate) async fn connect(&self) -> Result<(Client, Messages), tokio_postgres::Error> {
        match &self.wire {
            Wire::Plain => {
                let (client, connection) = self.config.connect(NoTls).await?;
                Ok((client, messages(connection)))
            }
            #[cfg(feature = "tls")]
            Wire::Tls(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                Ok((client, messages(connection)))
            }
        }
    }
}

fn messages<T>(connection: Connection<Socket, T>) -> Messages
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    stream::unfold(connection, |mut connection| async {
        let message = poll_fn(|cx| connection.poll_message(cx)).await?;
        Some((message, connection))
    })
    .boxed()
}

impl fmt::Debug for Link {
    /// Without the password, which the driver hides.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("hosts", &self.config.get_hosts())
            .field("ports", &self.config.get_ports())
            .finish_non_exhaustive()
    }
}
