//! What the server refuses, by meaning.

use std::fmt;

use tower_claim::transaction::{Conflict, UniqueViolation};
use tower_claim::{Key, StoreError};

use super::ReadError;

const CAME_SECOND: &str = "another transaction came first: run yours again";

/// A refusal, and what mends it.
#[derive(Debug)]
struct Advice {
    advice: &'static str,
    source: ReadError,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.advice, self.source)
    }
}

impl std::error::Error for Advice {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_ref())
    }
}

/// What a server's refusal means: its SQLSTATE, whether it ended the session (`FATAL`, `PANIC`), the key
/// of the call, and the driver's error.
///
/// An `ERROR` undoes the statement that met it: nothing was applied. A session that ends in the middle
/// of a call leaves its caller in doubt.
pub fn failure(
    sqlstate: &str,
    ended_session: bool,
    key: Option<&Key>,
    source: ReadError,
) -> StoreError {
    if ended_session {
        // 53300: refused at the door.
        return match sqlstate {
            "53300" => advise("too many connections: a smaller pool, or a pooler", source),
            _ => StoreError::ambiguous(source),
        };
    }
    match sqlstate {
        "TC001" => StoreError::Garbled {
            key_prefix: key.map(Key::prefix).unwrap_or_default(),
            source: Advice {
                advice: "written by a newer version, which must have finished its roll-out or be undone",
                source,
            }
            .into(),
        },
        "TC002" => StoreError::Unsupported("a fencing token above 2^53 - 1: the floor is inflated"),
        "55P03" => advise("the record is locked by another transaction", source),
        "40001" | "40P01" => advise(CAME_SECOND, source),
        "25006" => advise(
            "the server takes no writes (a replica?): connect to the primary, e.g. with \
             target_session_attrs=read-write",
            source,
        ),
        "42501" => advise(
            "the role lacks rights: run the GRANTs that `Names::grants` writes",
            source,
        ),
        "3F000" | "42P01" | "42883" | "42703" => advise(
            "the tables or functions are missing or foreign: run `migrate()`",
            source,
        ),
        "53300" => advise("too many connections: a smaller pool, or a pooler", source),
        // Of a driver that reports the state of a connection this way.
        "57P01" | "57P02" | "57P03" | "08000" | "08003" | "08006" | "08P01" => {
            StoreError::ambiguous(source)
        }
        _ => StoreError::unavailable(source),
    }
}

fn advise(advice: &'static str, source: ReadError) -> StoreError {
    StoreError::unavailable(Advice { advice, source })
}

/// Whether the server refused because another transaction came first: the whole transaction may be run again.
pub fn came_second(error: &StoreError) -> bool {
    let StoreError::Unavailable(source) = error else {
        return false;
    };
    let advice = source.downcast_ref::<Advice>();
    advice.is_some_and(|advice| advice.advice == CAME_SECOND)
}

/// What the refusal of a statement of the user's means, by its SQLSTATE and the names that the server gives with it.
pub fn conflict(
    sqlstate: &str,
    constraint: Option<&str>,
    table: Option<&str>,
    detail: Option<&str>,
) -> Conflict {
    match (sqlstate, constraint) {
        ("23505", Some(constraint)) => {
            let mut violation = UniqueViolation::new(constraint);
            if let Some(table) = table {
                violation = violation.with_table(table);
            }
            if let Some(detail) = detail {
                violation = violation.with_detail(detail);
            }
            Conflict::UniqueViolation(violation)
        }
        ("40001" | "40P01", _) => Conflict::CameSecond,
        _ => Conflict::Other,
    }
}
