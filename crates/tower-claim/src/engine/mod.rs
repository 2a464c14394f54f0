//! What authors of a store build on. Users of the layers need none of it.
//!
//! - [`Record`]: the record of one key and its moves, as pure functions of the record, a request and the
//!   time [`At`] the engine. An engine that keeps records as bytes (redb) or in memory keeps these; one that
//!   moves them in a script of its own (Lua, PL/pgSQL) does the same moves, and the suite of
//!   `conformance` holds it to the same laws.
//!   [`Record::to_bytes`] writes it with a version, [`Record::from_bytes`] refuses what it cannot read.
//! - [`EngineClock`]: what time it is by the engine, without asking.
//! - [`Bells`]: waiting for the end of a hold, woken early, with a poll as the net.
//! - [`call_within`]: one call, bounded.
//! - [`span_micros`], [`time_micros`]: spans and instants as an engine's integers.

mod bells;
mod clock;

use std::future::Future;
use std::time::Duration;

pub use crate::record::{Asker, At, Record, UnreadableRecord, Watching};
pub use bells::Bells;
pub use clock::EngineClock;

use crate::StoreError;
use crate::store::StoreTime;

/// The last instant engines know, in microseconds: 2^53 − 1, exact as a double, in the year 2255 by Unix
/// time. [`StoreTime::NEVER`] is written as it.
pub const LAST_MICROS: i64 = (1 << 53) - 1;

/// The longest span engines know: 100 years. Longer ones are written as it.
pub const LONGEST_SPAN: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// An instant as an engine's integer, [`LAST_MICROS`] at most.
#[expect(clippy::cast_possible_wrap, reason = "below 2^53")]
pub const fn time_micros(time: StoreTime) -> i64 {
    let micros = time.as_micros();
    if micros < LAST_MICROS as u64 {
        micros as i64
    } else {
        LAST_MICROS
    }
}

/// A span as an engine's integer, [`LONGEST_SPAN`] at most. Part of a microsecond counts as a whole one: no
/// lease is shorter than asked.
#[expect(clippy::cast_possible_truncation, reason = "at most 100 years")]
pub const fn span_micros(span: Duration) -> i64 {
    if span.as_nanos() >= LONGEST_SPAN.as_nanos() {
        return LONGEST_SPAN.as_micros() as i64;
    }
    span.as_nanos().div_ceil(1000) as i64
}

/// Bounds one call to an engine: past `limit` its answer counts as lost, and the call may have been applied.
///
/// # Errors
///
/// The call's own; [`StoreError::Ambiguous`] past `limit`.
///
/// # Cancellation
///
/// As the call's.
pub async fn call_within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::ambiguous(format!(
            "no answer within the call timeout of {limit:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_never_shorter_and_end_at_100_years() {
        assert_eq!(span_micros(Duration::from_nanos(1)), 1);
        assert_eq!(span_micros(Duration::from_nanos(1_000)), 1);
        assert_eq!(span_micros(Duration::from_nanos(1_001)), 2);
        assert_eq!(span_micros(Duration::MAX), span_micros(LONGEST_SPAN));
        assert!(span_micros(LONGEST_SPAN) < LAST_MICROS / 2);
    }

    #[test]
    fn never_is_the_last_instant() {
        assert_eq!(time_micros(StoreTime::NEVER), LAST_MICROS);
        assert_eq!(time_micros(StoreTime::from_micros(7)), 7);
    }

    #[tokio::test]
    async fn a_call_out_of_time_is_in_doubt() {
        let hung = std::future::pending::<Result<(), StoreError>>();
        let answer = call_within(Duration::from_millis(1), hung).await;
        assert!(answer.unwrap_err().is_ambiguous());
    }
}
