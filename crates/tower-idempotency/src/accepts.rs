//! Whether who repeats a request can read the answer that was kept.
//!
//! It is in the coding that the first request accepted. Another client, or the same one behind another proxy, may not
//! accept it; sent all the same, it would be bytes without a meaning.

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::record::KeptResponse;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPTS: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const CONNECT_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");
const CONNECT_ACCEPTS: HeaderName = HeaderName::from_static("connect-accept-encoding");

/// What codings a request accepts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accepts {
    /// None: any (RFC 9110, 12.5.3).
    http: Vec<HeaderValue>,
    /// Beside its own coding, which it can read, too.
    messages: Vec<HeaderValue>,
}

impl Accepts {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let lines = |names: &[HeaderName]| {
            let lines = names.iter().flat_map(|name| headers.get_all(name));
            lines.cloned().collect()
        };
        Self {
            http: lines(&[ACCEPT_ENCODING]),
            messages: lines(&[
                GRPC_ACCEPTS,
                GRPC_ENCODING,
                CONNECT_ACCEPTS,
                CONNECT_ENCODING,
            ]),
        }
    }

    /// Whether an answer can be read by who sent the request.
    pub(crate) fn reads(&self, kept: &KeptResponse) -> bool {
        if kept.body.is_empty() {
            return true;
        }
        let of = |name| codings(kept.headers.get_all(name));
        of(CONTENT_ENCODING).all(|coding| self.http.is_empty() || listed(&self.http, coding))
            && of(GRPC_ENCODING)
                .chain(of(CONNECT_ENCODING))
                .all(|coding| listed(&self.messages, coding) || !has_compressed(&kept.body))
    }
}

/// The elements of lists, but `identity`, which all can read.
fn codings<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> impl Iterator<Item = &'a str> {
    let lines = lines.into_iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
}

/// Whether a coding is in a list, and not with the weight zero; or `*` is.
fn listed(lines: &[HeaderValue], coding: &str) -> bool {
    let mut by_star = false;
    for element in codings(lines) {
        let mut parts = element.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let is_none = |weight: &str| weight.trim().parse::<f64>().is_ok_and(|q| q <= 0.0);
        let is_wanted = !weight.is_some_and(is_none);
        if one_name(name).eq_ignore_ascii_case(one_name(coding)) {
            return is_wanted;
        }
        by_star |= name == "*" && is_wanted;
    }
    by_star
}

/// Two names are old aliases (RFC 9110, 8.4.1).
fn one_name(coding: &str) -> &str {
    match coding.len() > 2 && coding.as_bytes()[..2].eq_ignore_ascii_case(b"x-") {
        true => &coding[2..],
        false => coding,
    }
}

/// Whether one of the messages is compressed: each has a flag that tells so, and four bytes of length before it.
fn has_compressed(mut messages: &[u8]) -> bool {
    while let [flags, a, b, c, d, rest @ ..] = messages {
        if flags & 1 == 1 {
            return true;
        }
        let length = u32::from_be_bytes([*a, *b, *c, *d]);
        let Some(next) = usize::try_from(length).ok().and_then(|at| rest.get(at..)) else {
            // Not framed so: in a coding as a whole.
            return true;
        };
        messages = next;
    }
    !messages.is_empty()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::StatusCode;

    use super::*;

    fn reads(asks: &[(&'static str, &'static str)], kept: (&'static str, &'static str)) -> bool {
        reads_body(asks, kept, b"\x01\0\0\0\x01x")
    }

    fn reads_body(
        asks: &[(&'static str, &'static str)],
        (name, value): (&'static str, &'static str),
        body: &'static [u8],
    ) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in asks {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let mut kept = KeptResponse {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: Bytes::from_static(body),
            trailers: None,
            first_seen: None,
            upload: None,
            is_whole: true,
        };
        kept.headers.insert(name, HeaderValue::from_static(value));
        Accepts::of(&headers).reads(&kept)
    }

    #[test]
    fn a_coding_is_accepted_as_rfc_9110_says() {
        let gzip = ("content-encoding", "gzip");
        assert!(reads(&[], gzip), "who says nothing takes any");
        for list in [
            "gzip",
            "br, GZIP",
            "br;q=1, gzip;q=0.5",
            "*",
            "x-gzip",
            "br, *;q=0.1",
        ] {
            assert!(reads(&[("accept-encoding", list)], gzip), "{list}");
        }
        for list in ["br", "", "identity", "gzip;q=0", "gzip; q=0.0, *", "*;q=0"] {
            assert!(!reads(&[("accept-encoding", list)], gzip), "{list}");
        }
        let lines = [("accept-encoding", "br"), ("accept-encoding", "gzip")];
        assert!(reads(&lines, gzip));
        let both = ("content-encoding", "gzip, br");
        assert!(!reads(&[("accept-encoding", "gzip")], both));
        let plain = ("content-encoding", "identity");
        assert!(reads(&[("accept-encoding", "br")], plain));
        assert!(reads_body(&[("accept-encoding", "br")], gzip, b""));
    }

    #[test]
    fn messages_are_compressed_as_their_flags_tell() {
        for (encoding, accepts) in [
            ("grpc-encoding", "grpc-accept-encoding"),
            ("connect-content-encoding", "connect-accept-encoding"),
        ] {
            let gzip = (encoding, "gzip");
            assert!(reads(&[(accepts, "identity,gzip")], gzip));
            assert!(reads(&[(encoding, "gzip")], gzip), "it writes that itself");
            assert!(!reads(&[], gzip), "who says nothing takes none");
            assert!(!reads(&[(accepts, "identity,zstd")], gzip));
            assert!(reads(&[], (encoding, "identity")));
            assert!(reads_body(&[], gzip, b"\0\0\0\0\x01x\0\0\0\0\0"));
            assert!(!reads_body(&[], gzip, b"\0\0\0\0\x01x\x01\0\0\0\0"));
            assert!(!reads_body(&[], gzip, b"\0\0\0\0\xffx"));
        }
    }
}
