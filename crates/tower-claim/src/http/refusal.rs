//! Refusals as responses: problem documents (RFC 9457), or trailers-only when the request is gRPC.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::Refusal;

/// The body of a refusal.
pub type RefusalBody = http_body_util::Full<Bytes>;

/// Replaces the text of refusals: given the refusal and its default response, answers the one to send.
/// The status should stay what it is: clients act on it.
pub type RenderRefusal = Arc<dyn Fn(&Refusal, Response<Bytes>) -> Response<Bytes> + Send + Sync>;

/// Whether a request is gRPC (`application/grpc`, `application/grpc+proto`, …; not gRPC-Web).
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|v| {
        let v = v.as_bytes();
        v.starts_with(b"application/grpc") && matches!(v.get(16), None | Some(b'+' | b';'))
    })
}

impl Refusal {
    /// The response: a problem document, or gRPC trailers-only when the request was gRPC
    /// (see [`is_grpc`]).
    ///
    /// The problem's `type` is the relative reference `/problems/` followed by the code's name. Members:
    /// `type`, `title`, `status`, `code`, and `detail` and `reason` where there are any. Never cached.
    ///
    /// The [`Code`](crate::Code) is in the response's extensions: a layer outside can tell it from an answer.
    pub fn to_response(&self, grpc: bool) -> Response<Bytes> {
        let mut response = if grpc {
            self.grpc_response()
        } else {
            self.problem_response()
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(secs) = self.retry_after_secs() {
            headers.insert(RETRY_AFTER, HeaderValue::from(secs));
        }
        response.extensions_mut().insert(self.code());
        response
    }

    /// The same in the user's own words, where there are some. They may be put into a new response: it is a
    /// refusal all the same.
    pub fn to_response_by(&self, render: Option<&RenderRefusal>, grpc: bool) -> Response<Bytes> {
        let response = self.to_response(grpc);
        let Some(render) = render else {
            return response;
        };
        let mut response = render(self, response);
        response.extensions_mut().insert(self.code());
        response
    }

    fn problem_response(&self) -> Response<Bytes> {
        let code = self.code();
        let mut json = String::with_capacity(192);
        let _ = write!(
            json,
            r#"{{"type":"/problems/{name}","title":{title},"status":{status},"code":"{name}""#,
            name = code.name(),
            title = json_string(code.title()),
            status = code.http_status(),
        );
        if let Some(detail) = self.detail() {
            let _ = write!(json, r#","detail":{}"#, json_string(detail));
        }
        if let Some(reason) = self.reason() {
            let _ = write!(json, r#","reason":{}"#, json_string(reason));
        }
        json.push('}');

        let mut response = Response::new(Bytes::from(json));
        *response.status_mut() =
            StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::CONFLICT);
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response
    }

    fn grpc_response(&self) -> Response<Bytes> {
        let code = self.code();
        let message = match self.detail() {
            Some(detail) => format!("{}: {detail}", code.name()),
            None => format!("{}: {}", code.name(), code.title()),
        };
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from(code.grpc_status()));
        if let Ok(message) = HeaderValue::from_str(&grpc_message(&message)) {
            headers.insert("grpc-message", message);
        }
        headers.insert("problem-code", HeaderValue::from_static(code.name()));
        response
    }
}

/// As a problem document. A handler over gRPC answers a status of its own instead.
///
/// The errors of the family convert into a [`Refusal`], so a handler that answers `Result<_, Refusal>` can
/// ask for a lease and a fence with `?`.
#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        self.to_response(false).map(Into::into)
    }
}

/// A JSON string with its quotes.
fn json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Percent-encodes as the gRPC HTTP/2 mapping asks: all but `0x20..=0x7E` without `%`.
fn grpc_message(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if (0x20..=0x7E).contains(&b) && b != b'%' {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Code;

    #[test]
    fn a_problem_document_looks_like_this() {
        let response = Refusal::new(Code::LeaseLost)
            .with_detail("the \"heartbeat\"\nstopped")
            .with_reason("stalled")
            .to_response(false);
        assert_eq!(response.status(), 409);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(
            response.body(),
            r#"{"type":"/problems/lease-lost","title":"The lease was lost while working","status":409,"code":"lease-lost","detail":"the \"heartbeat\"\u000astopped","reason":"stalled"}"#
        );
    }

    #[test]
    fn a_refusal_stays_one_in_other_words() {
        let words: RenderRefusal = Arc::new(|_, _| Response::new(Bytes::from_static(b"no")));
        let refusal = Refusal::new(Code::Leased);
        for response in [
            refusal.to_response(false),
            refusal.to_response(true),
            refusal.to_response_by(Some(&words), false),
        ] {
            assert_eq!(response.extensions().get(), Some(&Code::Leased));
        }
    }

    #[test]
    fn a_grpc_refusal_is_trailers_only() {
        let response = Refusal::new(Code::InProgress)
            .with_detail("50 % – wait")
            .with_retry_after(Duration::from_millis(1500))
            .to_response(true);
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "10");
        assert_eq!(
            response.headers()["grpc-message"],
            "in-progress: 50 %25 %E2%80%93 wait"
        );
        assert_eq!(response.headers()["retry-after"], "2");
        assert!(response.body().is_empty());
    }

    #[test]
    fn grpc_is_told_by_the_content_type() {
        let of = |v: &'static str| {
            let mut h = HeaderMap::new();
            h.insert(CONTENT_TYPE, HeaderValue::from_static(v));
            is_grpc(&h)
        };
        assert!(
            of("application/grpc") && of("application/grpc+proto") && of("application/grpc;x=y")
        );
        assert!(!of("application/grpc-web") && !of("application/json"));
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
