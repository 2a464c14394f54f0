//! What a failed call to etcd means.

use std::error::Error as _;

use etcd_client::Error;
use tower_claim::StoreError;

/// gRPC's codes, by number: `tonic` is no dependency of ours.
fn code(error: &Error) -> Option<i32> {
    match error {
        Error::GRpcStatus(status) => Some(i32::from(status.code())),
        _ => None,
    }
}

const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNIMPLEMENTED: i32 = 12;
const UNAUTHENTICATED: i32 = 16;

/// An answer of etcd's own that a transaction was refused whole. By its words too: a connection that broke
/// may carry the same codes (HTTP/2's `ENHANCE_YOUR_CALM` is told as an exhausted resource), and then the
/// transaction may have been applied.
fn is_refused(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return false;
    };
    let by_etcd = status.message().starts_with("etcdserver: ");
    by_etcd
        && matches!(
            code(error),
            Some(
                INVALID_ARGUMENT
                    | NOT_FOUND
                    | PERMISSION_DENIED
                    | RESOURCE_EXHAUSTED
                    | FAILED_PRECONDITION
                    | OUT_OF_RANGE
                    | UNAUTHENTICATED
            )
        )
}

/// Whether asking again is in vain.
pub(crate) fn is_final(error: &Error) -> bool {
    is_out_of_space(error)
        || matches!(
            code(error),
            Some(
                INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | UNIMPLEMENTED | UNAUTHENTICATED
            )
        )
}

pub(crate) fn is_lease_gone(error: &Error) -> bool {
    code(error) == Some(NOT_FOUND)
}

/// Whether the call did not leave this machine: no connection could be made. (A connection that breaks
/// has other words.)
pub(crate) fn never_sent(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return matches!(
            error,
            Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_)
        );
    };
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        cause = error.source();
    }
    false
}

/// What changes nothing that counts, failed.
pub(crate) fn of_read(error: Error) -> StoreError {
    if is_out_of_space(&error) {
        StoreError::Full
    } else {
        StoreError::unavailable(Failed::of(&error))
    }
}

pub(crate) fn of_write(error: Error) -> StoreError {
    if is_too_large(&error) {
        TOO_LARGE
    } else if is_out_of_space(&error) || is_refused(&error) || never_sent(&error) {
        of_read(error)
    } else {
        StoreError::ambiguous(Failed::of(&error))
    }
}

/// Refused whole, by etcd itself or by the gRPC server in front of it, and ever again.
const TOO_LARGE: StoreError = StoreError::Unsupported(
    "more in one request than etcd takes (1.5 MiB, unless it runs with a higher --max-request-bytes)",
);

pub(crate) fn is_too_large(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return false;
    };
    match i32::from(status.code()) {
        INVALID_ARGUMENT => status
            .message()
            .starts_with("etcdserver: request is too large"),
        RESOURCE_EXHAUSTED => status
            .message()
            .starts_with("grpc: received message larger than max"),
        _ => false,
    }
}

/// The `NOSPACE` alarm.
fn is_out_of_space(error: &Error) -> bool {
    is_refused(error) && error.to_string().contains("database space exceeded")
}

/// What a failed call said, in one line, with the mend where one is known.
#[derive(Debug)]
pub(crate) struct Failed(String);

impl Failed {
    pub(crate) fn of(error: &Error) -> Self {
        let Error::GRpcStatus(status) = error else {
            return Self(error.to_string());
        };
        let mut text = status.message().to_owned();
        let mut cause = status.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = error.source();
        }
        let mend = match i32::from(status.code()) {
            UNIMPLEMENTED => " (the server is not etcd 3.4 or newer)",
            PERMISSION_DENIED => " (the user needs read and write on the store's prefix)",
            UNAUTHENTICATED => " (give user and password with `user`)",
            INVALID_ARGUMENT if text.contains("user name is empty") => {
                " (the server demands a user: give one with `user`)"
            }
            INVALID_ARGUMENT if text.contains("authentication failed") => {
                " (wrong user or password)"
            }
            _ if text.contains("certificate") => " (give the authority that signed it with `tls`)",
            _ => "",
        };
        Self(format!("{text}{mend}"))
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}
