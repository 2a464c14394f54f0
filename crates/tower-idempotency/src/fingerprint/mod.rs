//! What must not change under one business key.

mod content_digest;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "json")]
mod literals;
mod multipart;
mod secret;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::request::Parts;
use http_body::Body;
use sha2::{Digest, Sha256};
use tower_claim::http::original_uri;
use tower_claim::{Code, Fingerprint, FingerprintBuilder, Refusal};

use crate::fields::RequestFields;
#[cfg(feature = "json")]
pub(crate) use json::Node;
use multipart::Multipart;
pub(crate) use secret::Secret;

/// Which parts of a request are bound to its key.
#[derive(Debug, Clone)]
pub(crate) enum Bound {
    /// Method, original path, query, content type and body.
    Payload(BodyRules),
    /// Method, original path, and these.
    Fields(RequestFields),
    /// Method and original path: for derived keys, where the first text wins.
    Target,
}

/// What of a body counts. By default all its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BodyRules {
    #[cfg(feature = "json")]
    pub(crate) canonical_json: bool,
    pub(crate) multipart: bool,
    pub(crate) content_digest: bool,
}

impl Bound {
    /// Whether another body is another payload.
    pub(crate) fn bodies(&self) -> bool {
        !matches!(self, Self::Target)
    }
}

/// Whether the request has no body at all, by its head.
pub(crate) fn has_no_body<B: Body>(parts: &Parts, body: &B) -> bool {
    body.is_end_stream()
        && !parts.headers.contains_key(CONTENT_LENGTH)
        && !parts.headers.contains_key(TRANSFER_ENCODING)
}

/// The fingerprint of a request. `body` is the whole body, however it was cut on its way; `None` when there
/// was none, which is the same as an empty one: a client that says `Content-Length: 0` on one connection ends its stream
/// with the head on the next.
///
/// # Errors
///
/// A body that is not what its `Content-Digest` says, where that counts.
pub(crate) fn of(
    bound: &Bound,
    parts: &Parts,
    body: Option<&[u8]>,
) -> Result<Fingerprint, Refusal> {
    let body = body.filter(|body| !body.is_empty());
    match bound {
        Bound::Target => Ok(target(b"v1", parts).build()),
        Bound::Payload(rules) => payload(*rules, parts, body),
        // What cannot be read is compared byte by byte.
        Bound::Fields(fields) => match fields.read(parts, body.unwrap_or_default()) {
            Err(_) => payload(BodyRules::default(), parts, body),
            Ok(values) => {
                let print = target(b"v1 fields", parts);
                let print = values.into_iter().fold(print, |print, (name, value)| {
                    let value = value.as_deref().map(str::as_bytes);
                    print.part(Some(name.as_bytes())).part(value)
                });
                Ok(print.build())
            }
        },
    }
}

fn target(version: &[u8], parts: &Parts) -> FingerprintBuilder {
    let uri = original_uri(&parts.extensions, &parts.uri);
    Fingerprint::builder()
        .part(Some(version))
        .part(Some(parts.method.as_str().as_bytes()))
        .part(Some(uri.path().as_bytes()))
}

fn payload(rules: BodyRules, parts: &Parts, body: Option<&[u8]>) -> Result<Fingerprint, Refusal> {
    let digest = match rules.content_digest {
        true => Some(verified(parts, body.unwrap_or_default())?).filter(|_| body.is_some()),
        false => None,
    };
    if rules.multipart
        && let Some(body) = body
        && let Some(multipart) = content_type(parts).and_then(Multipart::of)
        && let Some(found) = multipart.parts(body)
    {
        let print = up_to_the_body(parts, [&multipart.content_type[..]]);
        let print = print.part(Some(b"multipart"));
        let print = found.into_iter().fold(print, |p, part| p.part(Some(part)));
        return Ok(print.build());
    }
    let content_types = parts.headers.get_all(CONTENT_TYPE).iter();
    let print = up_to_the_body(parts, content_types.map(http::HeaderValue::as_bytes));
    #[cfg(feature = "json")]
    if rules.canonical_json
        && let Some(body) = body
        && content_type(parts).is_some_and(is_json)
        && let Some(form) = json::canonical(body)
    {
        return Ok(print.part(Some(b"json")).part(Some(&form)).build());
    }
    let print = match &digest {
        Some(digest) => with_digest(print, digest),
        None => print.part(body),
    };
    Ok(print.build())
}

/// Beside raw bytes, the name of its form goes before what stands for a body, so that no two forms meet.
fn up_to_the_body<'a>(
    parts: &Parts,
    content_types: impl IntoIterator<Item = &'a [u8]>,
) -> FingerprintBuilder {
    let uri = original_uri(&parts.extensions, &parts.uri);
    let print = target(b"v1", parts).part(uri.query().map(str::as_bytes));
    let print = content_types
        .into_iter()
        .fold(print, |print, value| print.part(Some(value)));
    // Ends the list of content types, so that none can pass for a body.
    print.part(None)
}

/// The digest that a request brings along, where its fingerprint can go by that alone.
pub(crate) fn claimed_digest(bound: &Bound, parts: &Parts) -> Option<[u8; 32]> {
    match bound {
        Bound::Payload(rules) if rules.content_digest => {
            content_digest::sha256(&parts.headers).ok().flatten()
        }
        _ => None,
    }
}

/// The fingerprint that [`of`] makes of a body with this digest.
pub(crate) fn of_digest(parts: &Parts, digest: &[u8; 32]) -> Fingerprint {
    let content_types = parts.headers.get_all(CONTENT_TYPE).iter();
    let print = up_to_the_body(parts, content_types.map(http::HeaderValue::as_bytes));
    let is_empty = Sha256::digest(b"")[..] == digest[..];
    let print = match is_empty {
        true => print.part(None),
        false => with_digest(print, digest),
    };
    print.build()
}

/// Of an upload that is not read first, and comes without its digest: what its head says, under the name of a form of
/// its own.
pub(crate) fn of_large_upload(bound: &Bound, parts: &Parts) -> Fingerprint {
    match bound {
        Bound::Target => target(b"v1", parts).build(),
        Bound::Payload(_) | Bound::Fields(_) => {
            let content_types = parts.headers.get_all(CONTENT_TYPE).iter();
            let print = up_to_the_body(parts, content_types.map(http::HeaderValue::as_bytes));
            print.part(Some(b"large upload")).part(None).build()
        }
    }
}

fn with_digest(print: FingerprintBuilder, digest: &[u8; 32]) -> FingerprintBuilder {
    print.part(Some(b"sha-256")).part(Some(digest))
}

/// The digest of the body, which is what the client says it is, if it says anything.
fn verified(parts: &Parts, body: &[u8]) -> Result<[u8; 32], Refusal> {
    let digest = Sha256::digest(body).into();
    match content_digest::sha256(&parts.headers) {
        Ok(claimed) if claimed.is_none_or(|claimed| claimed == digest) => Ok(digest),
        Ok(_) => Err(not_its_digest()),
        Err(_) => Err(false_digest("the Content-Digest is malformed (RFC 9530)")),
    }
}

pub(crate) fn not_its_digest() -> Refusal {
    false_digest("the body is not what its Content-Digest says")
}

fn false_digest(detail: &'static str) -> Refusal {
    Refusal::new(Code::BodyBroken)
        .with_reason("content-digest")
        .with_detail(detail)
}

/// The one content type.
fn content_type(parts: &Parts) -> Option<&[u8]> {
    let mut values = parts.headers.get_all(CONTENT_TYPE).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

/// `application/json`, or another type with the suffix `+json`.
#[cfg(feature = "json")]
fn is_json(content_type: &[u8]) -> bool {
    let end = content_type.iter().position(|&b| b == b';');
    let essence = content_type[..end.unwrap_or(content_type.len())].trim_ascii();
    let ends_with = |suffix: &[u8]| {
        essence
            .len()
            .checked_sub(suffix.len())
            .is_some_and(|at| essence[at..].eq_ignore_ascii_case(suffix))
    };
    essence.eq_ignore_ascii_case(b"application/json") || ends_with(b"+json")
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

    fn print(parts: &Parts, body: Option<&[u8]>) -> Fingerprint {
        by(BodyRules::default(), parts, body)
    }

    fn by(rules: BodyRules, parts: &Parts, body: Option<&[u8]>) -> Fingerprint {
        of(&Bound::Payload(rules), parts, body).unwrap()
    }

    #[test]
    fn method_path_query_type_and_body_are_bound() {
        let json = &["application/json"][..];
        let mut put = parts("/orders", json);
        put.method = http::Method::PUT;
        let all = [
            print(&parts("/orders", json), Some(b"{}")),
            print(&parts("/refunds", json), Some(b"{}")),
            print(&parts("/orders?", json), Some(b"{}")),
            print(&parts("/orders?a=1", json), Some(b"{}")),
            print(&parts("/orders", &["text/plain"]), Some(b"{}")),
            print(&parts("/orders", &[]), Some(b"{}")),
            print(&parts("/orders", json), Some(b"")),
            print(&parts("/orders", &["application/json", "{}"]), None),
            print(&put, Some(b"{}")),
        ];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate().skip(i + 1) {
                assert_ne!(a, b, "{i} and {j}");
            }
        }
    }

    /// On HTTP/1.1 a client says `Content-Length: 0`, on HTTP/2 the stream ends with the head.
    #[test]
    fn no_body_and_an_empty_one_are_one_payload() {
        let plain = parts("/orders", &["application/json"]);
        let digest = BodyRules {
            content_digest: true,
            ..BodyRules::default()
        };
        for rules in [BodyRules::default(), digest] {
            let none = by(rules, &plain, None);
            assert_eq!(none, by(rules, &plain, Some(b"")));
            let empty: [u8; 32] = Sha256::digest(b"").into();
            assert_eq!(none, of_digest(&plain, &empty));
            assert_ne!(none, by(rules, &plain, Some(b"{}")));
        }
    }

    #[test]
    fn a_header_that_says_nothing_of_the_payload_is_not_bound() {
        let mut other = parts("/orders", &[]);
        other.headers.remove("x-lab");
        let same = print(&parts("/orders", &[]), None);
        assert_eq!(print(&other, None), same);
    }

    #[test]
    fn of_a_derived_key_only_the_target_may_be_bound() {
        let of = |parts: &Parts, body| of(&Bound::Target, parts, body).unwrap();
        let first = of(&parts("/a?x=1", &["text/plain"]), Some(b"hello"));
        assert_eq!(first, of(&parts("/a", &[]), None));
        assert_ne!(first, of(&parts("/b", &[]), None));
    }

    #[test]
    fn the_forms_of_a_body_never_meet() {
        let json = parts("/orders", &["application/json"]);
        let digest = BodyRules {
            content_digest: true,
            ..BodyRules::default()
        };
        let body: &[u8] = b"{}";
        let sum: [u8; 32] = Sha256::digest(body).into();
        assert_ne!(by(digest, &json, Some(body)), print(&json, Some(body)));
        assert_ne!(by(digest, &json, Some(body)), print(&json, Some(&sum)));
        assert_eq!(by(digest, &json, None), print(&json, None));
    }

    #[cfg(feature = "json")]
    #[test]
    fn json_is_told_by_its_content_type() {
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "a/b+json",
        ] {
            assert!(is_json(json.as_bytes()), "{json}");
        }
        for other in [
            "",
            "text/plain",
            "application/jsonl",
            "a/b+json-seq",
            "json",
        ] {
            assert!(!is_json(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn of_named_fields_only_they_are_bound() {
        let bound = Bound::Fields(RequestFields::new().form("to").form("amount"));
        let of = |body: &'static str| {
            let parts = parts("/pay?utm=1", &["application/x-www-form-urlencoded"]);
            of(&bound, &parts, Some(body.as_bytes())).unwrap()
        };
        assert_eq!(of("to=a&amount=1"), of("amount=1&note=hi&to=a"));
        assert_ne!(of("to=a&amount=1"), of("to=a&amount=2"));
        assert_ne!(of("to=a&amount=1"), of("to=a"));
        // Malformed: then every byte counts.
        assert_ne!(of("to=a&to=b&amount=1"), of("to=a&to=b&amount=2"));
    }
}
