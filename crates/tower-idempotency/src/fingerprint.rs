//! What must not change under one business key.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::request::Parts;
use http_body::Body;
use tower_claim::Fingerprint;
use tower_claim::http::original_uri;

/// Which parts of a request are bound to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Method, original path, query, content type and body.
    Payload,
    /// Method and original path: for derived keys, where the first text wins.
    Target,
}

/// Whether the request has no body at all, which HTTP can tell from an empty one.
pub(crate) fn has_no_body<B: Body>(parts: &Parts, body: &B) -> bool {
    body.is_end_stream()
        && !parts.headers.contains_key(CONTENT_LENGTH)
        && !parts.headers.contains_key(TRANSFER_ENCODING)
}

/// The fingerprint of a request. `body` is the whole body, however it was cut on its way; `None` when there
/// was none.
pub(crate) fn of(bound: Bound, parts: &Parts, body: Option<&[u8]>) -> Fingerprint {
    let uri = original_uri(&parts.extensions, &parts.uri);
    let mut print = Fingerprint::builder()
        .part(Some(b"v1"))
        .part(Some(parts.method.as_str().as_bytes()))
        .part(Some(uri.path().as_bytes()));
    if bound == Bound::Payload {
        print = print.part(uri.query().map(str::as_bytes));
        for value in parts.headers.get_all(CONTENT_TYPE) {
            print = print.part(Some(value.as_bytes()));
        }
        // Ends the list of content types, so that none can pass for a body.
        print = print.part(None).part(body);
    }
    print.build()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(uri: &str, content_type: &[&str]) -> Parts {
        let mut request = Request::post(uri);
        for value in content_type {
            request = request.header("content-type", *value);
        }
        request
            .header("x-lab", "delay=1")
            .body(())
            .unwrap()
            .into_parts()
            .0
    }

    #[test]
    fn method_path_query_type_and_body_are_bound() {
        let json = &["application/json"][..];
        let mut put = parts("/orders", json);
        put.method = http::Method::PUT;
        let all = [
            of(Bound::Payload, &parts("/orders", json), Some(b"{}")),
            of(Bound::Payload, &parts("/refunds", json), Some(b"{}")),
            of(Bound::Payload, &parts("/orders?", json), Some(b"{}")),
            of(Bound::Payload, &parts("/orders?a=1", json), Some(b"{}")),
            of(
                Bound::Payload,
                &parts("/orders", &["text/plain"]),
                Some(b"{}"),
            ),
            of(Bound::Payload, &parts("/orders", &[]), Some(b"{}")),
            of(Bound::Payload, &parts("/orders", json), Some(b"")),
            of(Bound::Payload, &parts("/orders", json), None),
            of(
                Bound::Payload,
                &parts("/orders", &["application/json", "{}"]),
                None,
            ),
            of(Bound::Payload, &put, Some(b"{}")),
        ];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate().skip(i + 1) {
                assert_ne!(a, b, "{i} and {j}");
            }
        }
    }

    #[test]
    fn a_header_that_says_nothing_of_the_payload_is_not_bound() {
        let mut other = parts("/orders", &[]);
        other.headers.remove("x-lab");
        let same = of(Bound::Payload, &parts("/orders", &[]), None);
        assert_eq!(of(Bound::Payload, &other, None), same);
    }

    #[test]
    fn of_a_derived_key_only_the_target_may_be_bound() {
        let first = of(
            Bound::Target,
            &parts("/a?x=1", &["text/plain"]),
            Some(b"hello"),
        );
        assert_eq!(first, of(Bound::Target, &parts("/a", &[]), None));
        assert_ne!(first, of(Bound::Target, &parts("/b", &[]), None));
    }
}
