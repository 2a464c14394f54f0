//! Answers that a hook of the user's has made, or an operator: in one piece, with a head and a body.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body;
use tower_claim::http::is_grpc;

use crate::body::{ResponseBody, Whole};
use crate::headers::HeaderRules;
use crate::record::{Head, KeptResponse, Record};
use crate::shared::Shared;

/// How a call of gRPC ended.
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// What is said of it.
const MORE: [HeaderName; 2] = [
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status-details-bin"),
];

/// An answer that no handler has made.
///
/// On gRPC the end of a call stands behind its message: a client looks for it in the trailers, and takes a status in the
/// head for an answer that has nothing else. Who makes an answer in one piece has no other place for it than the head.
pub(crate) struct MadeAnswer {
    pub(crate) head: Parts,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl MadeAnswer {
    /// For a request that is gRPC, or not, or is not seen.
    pub(crate) fn of(response: Response<Bytes>, to_grpc: bool) -> Self {
        let (mut head, body) = response.into_parts();
        let has_message = !body.is_empty() && answers_grpc(&head, to_grpc);
        Self {
            trailers: has_message.then(|| behind_the_message(&mut head.headers)),
            head,
            body,
        }
    }

    /// As it is.
    pub(crate) fn into_response<R: Body>(self) -> Response<ResponseBody<R>> {
        let body = ResponseBody::whole(Whole::of(self.body, self.trailers));
        Response::from_parts(self.head, body)
    }

    /// As it is, for a replay.
    pub(crate) fn into_kept(self, first_seen: Option<Duration>) -> KeptResponse {
        KeptResponse {
            status: self.head.status,
            headers: self.head.headers,
            body: self.body,
            trailers: self.trailers,
            first_seen,
            is_whole: true,
            upload: None,
        }
    }

    /// Without the headers that are not kept.
    pub(crate) fn selected(mut self, rules: &HeaderRules) -> Self {
        self.head.headers = selected(rules, &self.head.headers);
        self.trailers = self.trailers.map(|trailers| selected(rules, &trailers));
        self
    }
}

impl Shared {
    /// The record of an answer that was made: under the same cap as a handler's.
    pub(crate) fn record_of(&self, made: &MadeAnswer, first_seen: Duration) -> Record {
        let MadeAnswer {
            head,
            body,
            trailers,
        } = made;
        let head = Head::new(head.status, &head.headers, &self.headers, first_seen);
        if body.len() > self.max_response_body {
            head.alone()
        } else {
            head.with_body([body].into_iter(), trailers.as_ref(), &self.headers)
        }
    }
}

fn selected(rules: &HeaderRules, headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in rules.select(headers) {
        kept.append(name, value.clone());
    }
    kept
}

/// By its content type; where it has none by the request, or by a field that nothing but gRPC has. An answer with an
/// error's HTTP status is none of gRPC's: clients make a status of that one themselves.
fn answers_grpc(head: &Parts, to_grpc: bool) -> bool {
    head.status == StatusCode::OK
        && if head.headers.contains_key(CONTENT_TYPE) {
            is_grpc(&head.headers)
        } else {
            to_grpc || head.headers.contains_key(STATUS)
        }
}

/// Takes the end of a call out of the head. Who gives a message and says nothing of the end means that all is well.
fn behind_the_message(head: &mut HeaderMap) -> HeaderMap {
    head.entry(CONTENT_TYPE)
        .or_insert(HeaderValue::from_static("application/grpc"));
    let mut trailers = HeaderMap::new();
    let status = head.remove(STATUS);
    trailers.insert(STATUS, status.unwrap_or(HeaderValue::from_static("0")));
    for name in MORE {
        if let Some(value) = head.remove(&name) {
            trailers.insert(name, value);
        }
    }
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(head: http::response::Builder, body: &'static str, to_grpc: bool) -> MadeAnswer {
        MadeAnswer::of(head.body(Bytes::from(body)).unwrap(), to_grpc)
    }

    #[test]
    fn the_end_of_a_call_stands_behind_its_message_and_else_in_the_head() {
        let head = || {
            Response::builder()
                .header("content-type", "application/grpc+proto")
                .header("grpc-status", "0")
                .header("grpc-message", "well")
                .header("grpc-status-details-bin", "AA")
                .header("x-order", "7")
        };
        let message = made(head(), "message", false);
        let trailers = message.trailers.unwrap();
        assert_eq!((trailers.len(), message.head.headers.len()), (3, 2));
        assert_eq!(trailers["grpc-message"], "well");
        let alone = made(head(), "", false);
        assert_eq!((alone.trailers, alone.head.headers.len()), (None, 5));
    }

    #[test]
    fn a_message_without_a_status_is_well() {
        for (head, to_grpc) in [
            (Response::builder(), true),
            (
                Response::builder().header("content-type", "application/grpc"),
                false,
            ),
        ] {
            let made = made(head, "message", to_grpc);
            assert_eq!(made.trailers.unwrap()["grpc-status"], "0");
            assert_eq!(made.head.headers["content-type"], "application/grpc");
        }
    }

    #[test]
    fn what_is_none_of_grpcs_is_left_alone() {
        for (head, to_grpc) in [
            (Response::builder(), false),
            (Response::builder().status(404), true),
            (
                Response::builder().header("content-type", "text/plain"),
                true,
            ),
            (
                Response::builder().header("content-type", "application/grpc-web"),
                true,
            ),
        ] {
            let before = head.headers_ref().unwrap().clone();
            let made = made(head, "text", to_grpc);
            assert_eq!((made.trailers, made.head.headers), (None, before));
        }
    }
}
