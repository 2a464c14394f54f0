//! What became of a key, as JSON.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tower_claim::{Code, Refusal};

use super::Fate;
use crate::json::{Object, base64};
use crate::record::KeptResponse;

pub(super) fn of(fate: &Fate, kept: Option<&KeptResponse>) -> Response<Full<Bytes>> {
    let (status, state) = match fate {
        Fate::NeverSeen => (StatusCode::NOT_FOUND, "never-seen"),
        Fate::Running(_) => (StatusCode::ACCEPTED, "running"),
        Fate::Unknown(_) => (StatusCode::CONFLICT, "unknown"),
        Fate::Done(_) => (StatusCode::OK, "done"),
    };
    let object = Object::new().text("state", state);
    let json = match fate {
        Fate::NeverSeen => object,
        Fate::Running(record) => object
            .raw("since_ms", record.since.as_millis())
            .raw("attempt", record.attempt)
            .raw("expires_in_ms", record.expires_in.as_millis())
            .raw("lapsed", record.lapsed),
        Fate::Unknown(record) => object
            .raw("since_ms", record.since.as_millis())
            .raw("expires_in_ms", record.expires_in.as_millis()),
        Fate::Done(done) => object
            .raw("finished_ms", done.finished.as_millis())
            .raw("expires_in_ms", done.keep_left.as_millis())
            .raw(
                "response",
                kept.map_or_else(|| "null".to_owned(), response_of),
            ),
    };
    let mut response = Response::new(Full::new(Bytes::from(json.end())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Fate::Running(record) = fate {
        headers.insert(RETRY_AFTER, retry_after(record.expires_in));
    }
    response
}

/// As under `in-progress`: the rest of the lease, 1 to 60 whole seconds.
fn retry_after(left: Duration) -> HeaderValue {
    let refusal = Refusal::new(Code::InProgress).with_retry_after(left);
    HeaderValue::from(refusal.retry_after_secs().unwrap_or(1))
}

fn response_of(kept: &KeptResponse) -> String {
    let object = Object::new()
        .raw("status", kept.status.as_u16())
        .pairs("headers", pairs(&kept.headers));
    let object = match std::str::from_utf8(&kept.body) {
        _ if !kept.is_whole => object,
        Ok(text) => object.text("body", text),
        Err(_) => object.text("body_base64", &base64(&kept.body)),
    };
    match &kept.trailers {
        Some(trailers) => object.pairs("trailers", pairs(trailers)),
        None => object,
    }
    .end()
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &[u8])> {
    headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
}
