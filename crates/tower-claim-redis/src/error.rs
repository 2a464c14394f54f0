//! What an error of the client means for a call.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tower_claim::StoreError;

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
        // Every server says so of every copy.
        ErrorKind::Server(ServerErrorKind::CrossSlot) => Standing::Refused,
        ErrorKind::Server(
            ServerErrorKind::NoScript
            | ServerErrorKind::NoPerm
            | ServerErrorKind::BusyLoading
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

/// What the errors of a batch's parts mean for the whole. What may have
/// been applied in part is repeated as a whole, and a record that cannot be read waits until the others are
/// settled.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<StoreError>);

impl Errors {
    pub(crate) fn add(&mut self, error: StoreError) {
        let weight = |error: &StoreError| (error.is_retryable(), error.is_ambiguous());
        if self
            .0
            .as_ref()
            .is_none_or(|worst| weight(worst) < weight(&error))
        {
            self.0 = Some(error);
        }
    }

    /// The whole batch's error, if any; `answered`: whether any part was.
    pub(crate) fn sum(self, answered: bool) -> Option<StoreError> {
        self.0.map(|error| match error {
            StoreError::Unavailable(source) if answered => StoreError::Ambiguous(source),
            StoreError::Full if answered => StoreError::ambiguous("Redis is out of memory"),
            error => error,
        })
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
            "NOPERM x",
            "NOSCRIPT x",
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
    fn a_batch_that_was_applied_in_part_is_in_doubt() {
        let garbled = || StoreError::Garbled {
            key_prefix: String::new(),
            source: "cut".into(),
        };
        let sum = |answered, errors: Vec<StoreError>| {
            let mut all = Errors::default();
            errors.into_iter().for_each(|error| all.add(error));
            all.sum(answered)
        };
        let (down, doubt) = (
            || StoreError::unavailable("down"),
            || StoreError::ambiguous("cut"),
        );
        assert!(sum(true, vec![]).is_none());
        assert!(matches!(
            sum(false, vec![down()]),
            Some(StoreError::Unavailable(_))
        ));
        assert!(sum(true, vec![down()]).is_some_and(|error| error.is_ambiguous()));
        assert!(sum(true, vec![StoreError::Full]).is_some_and(|error| error.is_ambiguous()));
        assert!(
            sum(false, vec![down(), doubt(), down()]).is_some_and(|error| error.is_ambiguous())
        );
        // The others are repeated first.
        assert!(sum(true, vec![garbled(), down()]).is_some_and(|error| error.is_retryable()));
        assert!(matches!(
            sum(true, vec![garbled()]),
            Some(StoreError::Garbled { .. })
        ));
    }

    #[test]
    fn a_read_only_server_is_left() {
        assert!(is_spent(&server("READONLY x")));
        assert!(is_spent(&io(std::io::ErrorKind::BrokenPipe)));
        assert!(!is_spent(&server("NOSCRIPT x")));
    }
}
