//! Whether an answer says that the first run is still going.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Response, StatusCode};

/// A server that says "at once" is asked again after this.
const AT_LEAST: Duration = Duration::from_millis(100);

/// When to come back, where the answer is 409 with `Retry-After`, or its like on gRPC: `ABORTED` in the head.
/// `None` for every other answer, and for a `Retry-After` that is a date: clocks differ.
pub(super) fn come_back_after<R>(response: &Response<R>) -> Option<Duration> {
    let headers = response.headers();
    let aborted = || headers.get("grpc-status").is_some_and(|s| s == "10");
    if response.status() != StatusCode::CONFLICT && !aborted() {
        return None;
    }
    let seconds: u64 = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds).max(AT_LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, headers: &[(&str, &str)]) -> Option<Duration> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        come_back_after(&response.body(()).unwrap())
    }

    #[test]
    fn only_a_conflict_that_says_when_is_waited_for() {
        assert_eq!(
            of(409, &[("retry-after", "3")]),
            Some(Duration::from_secs(3))
        );
        assert_eq!(of(409, &[("retry-after", "0")]), Some(AT_LEAST));
        let aborted = [("grpc-status", "10"), ("retry-after", "1")];
        assert_eq!(of(200, &aborted), Some(Duration::from_secs(1)));
        assert_eq!(of(409, &[]), None);
        assert_eq!(of(503, &[("retry-after", "3")]), None);
        assert_eq!(
            of(409, &[("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")]),
            None
        );
        assert_eq!(
            of(200, &[("grpc-status", "14"), ("retry-after", "1")]),
            None
        );
    }
}
