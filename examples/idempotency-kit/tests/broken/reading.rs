//! What the layer takes from a request: its key, and what must not change under it.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

use crate::flaw::Flaw;
use crate::service::Service;

pub(crate) type Fingerprint = Vec<u8>;

/// The key, where there is one; an error where it is none.
pub(crate) fn key(service: &Service, headers: &HeaderMap) -> Result<Option<String>, ()> {
    let mut lines = headers.get_all("idempotency-key").iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() && !service.has(Flaw::TakesTheFirstOfTwoKeys) {
        return Err(());
    }
    let text = line.to_str().map_err(|_| ())?.trim();
    let key = match text.strip_prefix('"') {
        Some(_) if service.has(Flaw::TakesQuotesForTheKey) => text,
        Some(rest) => {
            let (key, rest) = rest.split_once('"').ok_or(())?;
            if !(rest.is_empty() || rest.starts_with(';')) {
                return Err(());
            }
            key
        }
        None => text,
    };
    let graphic = key
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b',');
    if key.is_empty() || !graphic {
        return Err(());
    }
    if service.has(Flaw::CutsLongKeys) {
        return Ok(Some(key.chars().take(64).collect()));
    }
    match key.len() {
        ..=255 => Ok(Some(key.to_owned())),
        _ => Err(()),
    }
}

pub(crate) fn fingerprint(service: &Service, head: &Parts, body: &Bytes) -> Fingerprint {
    let media = head.headers.get("content-type");
    let media = media.map(HeaderValue::as_bytes).unwrap_or_default();
    let chunked = !head.headers.contains_key("content-length");
    let body = match () {
        () if service.has(Flaw::ComparesNoBody) => Vec::new(),
        () if service.has(Flaw::SkipsBodiesWithoutLength) && chunked => Vec::new(),
        () if service.has(Flaw::TakesEmptyForAnEmptyObject) && body.is_empty() => b"{}".to_vec(),
        () if service.has(Flaw::BlursNumbers) => match serde_json::from_slice(body) {
            Ok(serde_json::Value::Object(members)) => {
                let blurred = members.iter().map(|(name, value)| (name, value.as_f64()));
                format!("{:?}", blurred.collect::<BTreeMap<_, _>>()).into_bytes()
            }
            _ => body.to_vec(),
        },
        () => body.to_vec(),
    };
    let media = match service.has(Flaw::ForgetsContentType) {
        true => &b""[..],
        false => media,
    };
    let path = match service.has(Flaw::ForgetsTheEndpoint) {
        true => "",
        false => head.uri.path(),
    };
    [path.as_bytes(), b"\n", media, b"\n", &body].concat()
}
