//! Which responses may be shared, and what of them.

use http::header::{
    CONNECTION, CONTENT_TYPE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
    SET_COOKIE, TE, TRANSFER_ENCODING, UPGRADE, VARY,
};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::request::{has_directive, tokens};

/// Of one connection only (RFC 9110, 7.6.1), beside what `Connection` itself names.
const HOP_BY_HOP: [HeaderName; 4] = [CONNECTION, TE, TRANSFER_ENCODING, UPGRADE];

/// Of one connection, or of one request's way through the system.
const PERSONAL: [&str; 11] = [
    "keep-alive",
    "proxy-connection",
    "request-id",
    "x-request-id",
    "x-correlation-id",
    "x-trace-id",
    "x-amzn-trace-id",
    "traceparent",
    "tracestate",
    "traceresponse",
    "server-timing",
];

/// The answer is for one caller.
pub(super) fn is_personal(parts: &Parts) -> bool {
    let status = matches!(
        parts.status,
        StatusCode::SWITCHING_PROTOCOLS
            | StatusCode::PARTIAL_CONTENT
            | StatusCode::UNAUTHORIZED
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::RANGE_NOT_SATISFIABLE
            | StatusCode::MISDIRECTED_REQUEST
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS
    );
    let headers = &parts.headers;
    status
        || headers.contains_key(SET_COOKIE)
        || has_directive(headers, "private")
        || has_directive(headers, "no-store")
        || varies_by_all(headers)
        || is_event_stream(headers)
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let essence = value.as_bytes().split(|b| *b == b';').next();
        essence.is_some_and(|e| e.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
    })
}

/// `Vary: *`, or something that names no header.
fn varies_by_all(headers: &HeaderMap) -> bool {
    tokens(headers, &VARY).any(|t| t == b"*" || HeaderName::from_bytes(t).is_err())
}

/// The request headers that the response depends on: those it names, and the conditions of a 304 or 412.
pub(super) fn varies_by(parts: &Parts) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = tokens(&parts.headers, &VARY)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .collect();
    if matches!(
        parts.status,
        StatusCode::NOT_MODIFIED | StatusCode::PRECONDITION_FAILED
    ) {
        names.extend([
            IF_NONE_MATCH,
            IF_MODIFIED_SINCE,
            IF_MATCH,
            IF_UNMODIFIED_SINCE,
        ]);
    }
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    names
}

/// The headers that a follower gets.
pub(super) fn copied(headers: &HeaderMap) -> HeaderMap {
    let mut copy = headers.clone();
    for name in tokens(headers, &CONNECTION) {
        if let Ok(name) = HeaderName::from_bytes(name) {
            copy.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        copy.remove(name);
    }
    depersonalize(&mut copy);
    // RFC 9211, 2.3: this request was collapsed with another.
    copy.append(
        "cache-status",
        HeaderValue::from_static("tower-single-flight; fwd=miss; collapsed"),
    );
    copy
}

/// What goes with the leader only, in headers and in trailers.
pub(super) fn depersonalize(fields: &mut HeaderMap) {
    for name in PERSONAL {
        fields.remove(name);
    }
}
