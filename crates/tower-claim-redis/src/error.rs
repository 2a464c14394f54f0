//! What an error of the client means for a call.

use std::error::Error;
use std::fmt;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tower_claim::{ConfigError, StoreError};

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
                format!("{error}; is it a Redis server?")
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

/// Who sends a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Once, over a connection that stood: what failed, failed after the send.
    Once,
    /// Once, over a connection of the user's that may reconnect first.
    OnceConnected,
    /// More than once, by the cluster client: the last error says nothing about the copies before.
    Repeated,
}

/// Whether the call may have been applied. Where that is not certain, it may.
///
/// The scripts read first and write last, so an error that the server gives to a script's first write
/// (memory, replicas, a read-only replica) means that nothing was written.
pub(crate) fn meaning(error: RedisError, sent: Sent) -> StoreError {
    match standing(&error, sent) {
        Standing::Full => StoreError::Full,
        Standing::Refused => StoreError::unavailable(error),
        Standing::Unknown => StoreError::ambiguous(error),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Refused,
    Full,
    Unknown,
}

fn standing(error: &RedisError, sent: Sent) -> Standing {
    match error.kind() {
        // Never repeated by the client: it is the answer to the only copy.
        ErrorKind::Server(
            ServerErrorKind::NoScript | ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot,
        ) => Standing::Refused,
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly,
        ) if sent != Sent::Repeated => Standing::Refused,
        ErrorKind::Extension => match error.code() {
            Some("OOM") if sent != Sent::Repeated => Standing::Full,
            Some("MISCONF" | "NOREPLICAS" | "BUSY" | "NOAUTH" | "DENIED")
                if sent != Sent::Repeated =>
            {
                Standing::Refused
            }
            _ => Standing::Unknown,
        },
        ErrorKind::Io if sent == Sent::OnceConnected && error.is_connection_refusal() => {
            Standing::Refused
        }
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig
            if sent != Sent::Repeated =>
        {
            Standing::Refused
        }
        _ => Standing::Unknown,
    }
}

/// Whether a connection that gave this error leads to the wrong server, or nowhere.
pub(crate) fn is_spent(error: &RedisError) -> bool {
    let moved = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    );
    moved || error.is_unrecoverable_error() || error.is_io_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    fn io(kind: std::io::ErrorKind) -> RedisError {
        std::io::Error::from(kind).into()
    }

    #[test]
    fn what_the_server_refused_was_not_applied() {
        for line in [
            "LOADING Redis is loading the dataset in memory",
            "READONLY You can't write against a read only replica.",
            "CLUSTERDOWN The cluster is down",
            "MOVED 3999 127.0.0.1:6381",
            "MASTERDOWN Link with MASTER is down",
            "NOSCRIPT No matching script.",
            "NOPERM this user has no permissions",
            "NOAUTH Authentication required.",
            "MISCONF Errors writing to the AOF file",
            "NOREPLICAS Not enough good replicas to write.",
            "BUSY Redis is busy running a script.",
        ] {
            let error = meaning(server(line), Sent::Once);
            assert!(
                matches!(error, StoreError::Unavailable(_)),
                "{line}: {error:?}"
            );
        }
        let oom = server("OOM command not allowed when used memory > 'maxmemory'.");
        assert!(matches!(meaning(oom, Sent::Once), StoreError::Full));
    }

    #[test]
    fn what_may_have_been_applied_is_in_doubt() {
        use std::io::ErrorKind::{
            BrokenPipe, ConnectionRefused, ConnectionReset, TimedOut, UnexpectedEof,
        };
        for kind in [
            BrokenPipe,
            ConnectionReset,
            ConnectionRefused,
            TimedOut,
            UnexpectedEof,
        ] {
            assert!(meaning(io(kind), Sent::Once).is_ambiguous(), "{kind:?}");
            assert!(meaning(io(kind), Sent::Repeated).is_ambiguous(), "{kind:?}");
        }
        for line in [
            "ERR upstream failure",
            "ERR Error running script",
            "WHATEVER nobody knows",
            "UNKILLABLE Sorry",
        ] {
            assert!(meaning(server(line), Sent::Once).is_ambiguous(), "{line}");
        }
        // A copy before the one that was refused may have been applied.
        for line in [
            "CLUSTERDOWN The cluster is down",
            "READONLY x",
            "LOADING x",
            "MOVED 1 a:1",
            "OOM x",
        ] {
            assert!(
                meaning(server(line), Sent::Repeated).is_ambiguous(),
                "{line}"
            );
        }
    }

    #[test]
    fn a_connection_that_was_never_made_carried_nothing() {
        let refused = io(std::io::ErrorKind::ConnectionRefused);
        assert!(!meaning(refused, Sent::OnceConnected).is_ambiguous());
        let reset = io(std::io::ErrorKind::ConnectionReset);
        assert!(meaning(reset, Sent::OnceConnected).is_ambiguous());
    }

    #[test]
    fn a_read_only_server_is_left() {
        assert!(is_spent(&server("READONLY x")));
        assert!(is_spent(&io(std::io::ErrorKind::BrokenPipe)));
        assert!(!is_spent(&server("NOSCRIPT x")));
    }
}
