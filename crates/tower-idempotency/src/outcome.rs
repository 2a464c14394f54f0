//! What an answer says about the work: is it an outcome to keep, or may the request run again?

use std::fmt;
use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::response::Parts;
use http::{HeaderMap, StatusCode};
use tower_claim::Code;

/// Put this into a response's extensions to say that the request was turned away **before any effect**: a
/// failed validation, a wrong one-time code. The answer is sent, nothing is kept, and a repeat runs again,
/// corrected body included.
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_idempotency::NoEffect;
///
/// let response = Response::builder()
///     .status(StatusCode::UNPROCESSABLE_ENTITY)
///     .extension(NoEffect)
///     .body("the amount is negative")?;
/// # let _ = response;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoEffect;

/// It is an error, so that it can be the source of one that a framework makes a response of. What comes by that way is
/// found by [`outcome_if`](crate::IdempotencyBuilder::outcome_if), as the example there shows.
impl std::error::Error for NoEffect {}

impl fmt::Display for NoEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("turned away before any effect")
    }
}

/// What becomes of the claim of a request that was answered.
///
/// A handler may say so itself, by putting one into its response's extensions; that goes before every rule.
///
/// ```
/// use http::Response;
/// use tower_idempotency::Outcome;
///
/// // A secret that is shown once: the work is never done again, and nobody is shown it again.
/// let response = Response::builder()
///     .extension(Outcome::Tombstone)
///     .body("the password is …")?;
/// # let _ = response;
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The work is over: the answer is kept and replayed.
    Keep,
    /// The work is over, and its answer is sent once. Of it only status and headers are kept: a repeat is told that
    /// (409 `response-not-kept`), or is answered [in other words](crate::IdempotencyBuilder::on_not_kept).
    Tombstone,
    /// The work did not happen, or may happen again: nothing is kept, and a repeat runs.
    Release,
}

/// The rule that holds when none is set: 2xx, 3xx and 4xx are kept, but 408, 423, 425 and 429, which ask for
/// another try, 421, which asks for another connection, and 401 and 407, which ask who is there; everything else (5xx)
/// is not.
///
/// The source of the rule is what broke elsewhere: a 503 pinned for a day, a 429 replayed when the quota
/// was there again, a 423 when the lock was long gone, a 401 to whoever came with the right password next.
///
/// Before this rule: a 4xx with a `Retry-After` asks for another try, too, such as the 409 of another idempotent
/// service behind this one whose first run is still going. And an answer with a `grpc-status` in its head is judged by
/// [that](default_grpc_outcome), also behind a bridge to gRPC-Web, whose HTTP status is always 200. (What such a bridge
/// writes into the body is not read: put it outside of this layer.)
///
/// Whatever the rule: a refusal that a layer of this family inside made (its [`Code`](tower_claim::Code) is in
/// the response's extensions) is no outcome. A lease held by another, a fence that refuses a stale token, an
/// idempotency layer whose first run is still going: a repeat asks them again.
pub fn default_outcome(status: StatusCode) -> Outcome {
    match status.as_u16() {
        401 | 407 | 408 | 421 | 423 | 425 | 429 => Outcome::Release,
        200..=499 => Outcome::Keep,
        _ => Outcome::Release,
    }
}

/// The same for gRPC, whose HTTP status is always 200: OK, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS,
/// PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE and UNIMPLEMENTED are kept; what a client may try again
/// is not. A call without a status broke off: that is never an outcome.
pub fn default_grpc_outcome(status: u8) -> Outcome {
    match status {
        0 | 3 | 5 | 6 | 7 | 9 | 11 | 12 => Outcome::Keep,
        _ => Outcome::Release,
    }
}

type ByHead = Arc<dyn Fn(&Parts) -> Option<Outcome> + Send + Sync>;
type ByStatus = Arc<dyn Fn(StatusCode) -> Outcome + Send + Sync>;
type ByGrpcStatus = Arc<dyn Fn(u8) -> Outcome + Send + Sync>;

/// The rules by which answers are judged, first to last.
#[derive(Clone)]
pub(crate) struct OutcomeRules {
    pub(crate) by_head: Vec<ByHead>,
    pub(crate) by_status: ByStatus,
    pub(crate) by_grpc_status: ByGrpcStatus,
}

/// When it is known whether the answer is an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Now(Outcome),
    /// gRPC tells its status in the trailers.
    InTrailers,
}

impl OutcomeRules {
    pub(crate) fn judge(&self, head: &Parts, is_grpc: bool) -> Verdict {
        // Turned away before any effect, by its own word; or a refusal of a layer inside.
        if head.extensions.get::<NoEffect>().is_some() || head.extensions.get::<Code>().is_some() {
            return Verdict::Now(Outcome::Release);
        }
        let said = head.extensions.get::<Outcome>().copied();
        if let Some(outcome) = said.or_else(|| self.by_head.iter().find_map(|rule| rule(head))) {
            return Verdict::Now(outcome);
        }
        if head.headers.contains_key(GRPC_STATUS) {
            Verdict::Now(self.judge_grpc(Some(&head.headers)))
        } else if is_grpc {
            Verdict::InTrailers
        } else if head.status.is_client_error() && head.headers.contains_key(RETRY_AFTER) {
            Verdict::Now(Outcome::Release)
        } else {
            Verdict::Now((self.by_status)(head.status))
        }
    }

    /// By the trailers; or by the head of an answer that has nothing else.
    pub(crate) fn judge_grpc(&self, trailers: Option<&HeaderMap>) -> Outcome {
        let status = trailers
            .and_then(|t| t.get(GRPC_STATUS))
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.parse::<u8>().ok());
        status.map_or(Outcome::Release, |status| (self.by_grpc_status)(status))
    }
}

const GRPC_STATUS: &str = "grpc-status";

impl Default for OutcomeRules {
    fn default() -> Self {
        Self {
            by_head: Vec::new(),
            by_status: Arc::new(default_outcome),
            by_grpc_status: Arc::new(default_grpc_outcome),
        }
    }
}

impl fmt::Debug for OutcomeRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutcomeRules")
            .field("by_head", &self.by_head.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_another_try_is_not_kept() {
        for status in [
            100, 101, 401, 407, 408, 421, 423, 425, 429, 500, 502, 503, 504, 599, 999,
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(default_outcome(status), Outcome::Release, "{status}");
        }
        for status in [200, 201, 204, 303, 304, 400, 403, 404, 409, 422, 499] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(default_outcome(status), Outcome::Keep, "{status}");
        }
    }

    fn judged(head: http::response::Builder) -> Verdict {
        let (head, ()) = head.body(()).unwrap().into_parts();
        OutcomeRules::default().judge(&head, false)
    }

    #[test]
    fn a_client_that_is_asked_to_come_again_may() {
        let conflict = || http::Response::builder().status(409);
        assert_eq!(judged(conflict()), Verdict::Now(Outcome::Keep));
        let again = conflict().header(RETRY_AFTER, "3");
        assert_eq!(judged(again), Verdict::Now(Outcome::Release));
        // A job that was accepted, and tells when to look for it.
        let accepted = http::Response::builder()
            .status(202)
            .header(RETRY_AFTER, "3");
        assert_eq!(judged(accepted), Verdict::Now(Outcome::Keep));
    }

    #[test]
    fn a_grpc_status_in_the_head_goes_before_the_http_status() {
        let of = |status| judged(http::Response::builder().header(GRPC_STATUS, status));
        assert_eq!(of("14"), Verdict::Now(Outcome::Release));
        assert_eq!(of("6"), Verdict::Now(Outcome::Keep));
    }

    #[test]
    fn grpc_is_judged_by_its_trailers() {
        let of = |status: &'static str| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static(status));
            OutcomeRules::default().judge_grpc(Some(&trailers))
        };
        assert_eq!(of("0"), Outcome::Keep);
        assert_eq!(of("9"), Outcome::Keep);
        for again in ["1", "2", "4", "8", "10", "13", "14", "15", "x", "300"] {
            assert_eq!(of(again), Outcome::Release, "{again}");
        }
        assert_eq!(OutcomeRules::default().judge_grpc(None), Outcome::Release);
    }
}
