//! Why there is no store.

use std::error::Error;
use std::fmt;

use redis::{ErrorKind, RedisError};
use tower_claim::{ConfigError, StoreError};

/// Asked of whoever hangs up, or says nothing: a server without TLS waits for the rest of a greeting.
pub(crate) const IS_IT: &str =
    "is it a Redis server, and up? One with TLS is rediss://, one without redis://";

/// Why there is no store. `Display` is one line that says the mend.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting, here or of the server, that no store can stand on.
    Config(ConfigError),
    /// The server cannot be reached, refuses us, or is none of Redis.
    Unreachable {
        /// Its address, without user and password.
        server: String,
        /// What went wrong.
        why: String,
        /// The client's error.
        source: Option<RedisError>,
    },
}

impl ConnectError {
    pub(crate) fn config(setting: &'static str, problem: impl Into<String>) -> Self {
        Self::Config(ConfigError::new(setting, problem))
    }

    pub(crate) fn unreachable(server: &str, error: RedisError) -> Self {
        if error.to_string().contains("cluster support disabled") {
            return Self::config(
                "cluster",
                format!("{server} is a single server, none of a cluster: name it in `url`"),
            );
        }
        let why = match error.kind() {
            ErrorKind::AuthenticationFailed => {
                "user or password is refused: put them into the url (redis://user:password@host)"
                    .to_owned()
            }
            _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => {
                "it wants a password: put it into the url (redis://user:password@host)".to_owned()
            }
            _ if error.code() == Some("NOPERM") => {
                format!("{error} (the README lists the rights it needs)")
            }
            _ if error.to_string().contains("certificate") => {
                format!("{error}: name the authority that signed it in `ca_certificate`")
            }
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
                "what answers there is no Redis server".to_owned()
            }
            ErrorKind::Io if !error.is_connection_refusal() => {
                format!("{error}; {IS_IT}")
            }
            _ => error.to_string(),
        };
        Self::Unreachable {
            server: server.to_owned(),
            why: one_line(&why),
            source: Some(error),
        }
    }

    pub(crate) fn silent(server: &str, why: impl Into<String>) -> Self {
        Self::Unreachable {
            server: server.to_owned(),
            why: why.into(),
            source: None,
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Unreachable { server, why, .. } => write!(f, "no Redis at {server}: {why}"),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Config(_) => None,
            Self::Unreachable { source, .. } => source.as_ref().map(|error| error as &dyn Error),
        }
    }
}

impl From<ConfigError> for ConnectError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<ConnectError> for StoreError {
    /// No connection: nothing was applied.
    fn from(error: ConnectError) -> Self {
        StoreError::unavailable(error)
    }
}
