//! What an answer says about the work: is it an outcome to keep, or may the request run again?

use http::{HeaderMap, StatusCode};

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

/// What becomes of the claim of a request that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The work is over: the answer is kept and replayed.
    Keep,
    /// The work did not happen, or may happen again: nothing is kept, and a repeat runs.
    Release,
}

/// The rule that holds when none is set: 2xx, 3xx and 4xx are kept, but 408, 423, 425 and 429, which ask for
/// another try, and 401 and 407, which ask who is there; everything else (5xx) is not.
///
/// The source of the rule is what broke elsewhere: a 503 pinned for a day, a 429 replayed when the quota
/// was there again, a 423 when the lock was long gone, a 401 to whoever came with the right password next.
///
/// Whatever the rule: a refusal that a layer of this family inside made (its [`Code`](tower_claim::Code) is in
/// the response's extensions) is no outcome. A lease held by another, a fence that refuses a stale token, an
/// idempotency layer whose first run is still going: a repeat asks them again.
pub fn default_outcome(status: StatusCode) -> Outcome {
    match status.as_u16() {
        401 | 407 | 408 | 423 | 425 | 429 => Outcome::Release,
        200..=499 => Outcome::Keep,
        _ => Outcome::Release,
    }
}

/// The same by the status of gRPC, whose HTTP status is always 200: what a client may try again is not
/// kept. A call without a status broke off.
pub(crate) fn grpc_outcome(trailers: Option<&HeaderMap>) -> Outcome {
    let status = trailers
        .and_then(|t| t.get("grpc-status"))
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse::<u8>().ok());
    match status {
        // OK, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, FAILED_PRECONDITION,
        // OUT_OF_RANGE, UNIMPLEMENTED
        Some(0 | 3 | 5 | 6 | 7 | 9 | 11 | 12) => Outcome::Keep,
        _ => Outcome::Release,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_another_try_is_not_kept() {
        for status in [
            100, 101, 401, 407, 408, 423, 425, 429, 500, 502, 503, 504, 599, 999,
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(default_outcome(status), Outcome::Release, "{status}");
        }
        for status in [200, 201, 204, 303, 304, 400, 403, 404, 409, 422, 499] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(default_outcome(status), Outcome::Keep, "{status}");
        }
    }

    #[test]
    fn grpc_is_judged_by_its_trailers() {
        let of = |status: &'static str| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static(status));
            grpc_outcome(Some(&trailers))
        };
        assert_eq!(of("0"), Outcome::Keep);
        assert_eq!(of("9"), Outcome::Keep);
        for again in ["1", "2", "4", "8", "10", "13", "14", "15", "x", "300"] {
            assert_eq!(of(again), Outcome::Release, "{again}");
        }
        assert_eq!(grpc_outcome(None), Outcome::Release);
    }
}
