//! Which response headers are kept for replays.

use http::header::{self, HeaderMap, HeaderName};

/// What was true of one exchange only: hop-by-hop fields (RFC 9110, 7.6.1), framing, dates, cookies and
/// challenges, traces and quotas.
const DROPPED: &[HeaderName] = &[
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
    header::DATE,
    header::AGE,
    header::SET_COOKIE,
    header::WWW_AUTHENTICATE,
    header::ALT_SVC,
];

/// The same, for names that have no constant.
const DROPPED_BY_NAME: &[&str] = &[
    "keep-alive",
    "proxy-connection",
    "authentication-info",
    "proxy-authentication-info",
    "set-cookie2",
    "server-timing",
    "traceparent",
    "tracestate",
    "traceresponse",
    "b3",
    "uber-trace-id",
    "x-cloud-trace-context",
    "x-amzn-trace-id",
    "x-trace-id",
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "x-correlation-id",
    "correlation-id",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    // What a guard further inside says of its own answer.
    "idempotent-replayed",
    "idempotency-status",
    "idempotency-first-seen",
];

/// What says how the bytes of a body are to be read, or how a call of gRPC ended: without them the rest is worth
/// nothing, so a list of headers need not name them.
const TELLING: &[&str] = &[
    "content-type",
    "content-encoding",
    "grpc-encoding",
    "connect-content-encoding",
    "grpc-status",
    "grpc-message",
    "grpc-status-details-bin",
];

/// What belongs to one message on one connection. Replayed, it would break the next.
const FRAMING: &[HeaderName] = &[
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
];

const DROPPED_BY_PREFIX: &[&str] = &["x-b3-", "x-ratelimit-", "x-rate-limit-"];

/// Which headers of a response are kept with it: the defaults, and what the user adds to either side.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeaderRules {
    kept: Vec<HeaderName>,
    dropped: Vec<HeaderName>,
    /// No others.
    only: Option<Vec<HeaderName>>,
}

/// What the user added.
pub(crate) struct UserRules<'a> {
    pub(crate) kept: &'a [HeaderName],
    pub(crate) dropped: &'a [HeaderName],
    pub(crate) only: Option<&'a [HeaderName]>,
}

impl HeaderRules {
    pub(crate) fn keep(&mut self, name: HeaderName) {
        self.dropped.retain(|n| *n != name);
        self.kept.push(name);
    }

    pub(crate) fn drop(&mut self, name: HeaderName) {
        self.kept.retain(|n| *n != name);
        self.dropped.push(name);
    }

    pub(crate) fn only(&mut self, names: Vec<HeaderName>) {
        self.only = Some(names);
    }

    /// A header that must not be kept, though the user asked for it.
    pub(crate) fn forbidden(&self) -> Option<&HeaderName> {
        let only = self.only.iter().flatten();
        only.chain(&self.kept).find(|name| FRAMING.contains(name))
    }

    /// What the user added to the defaults.
    pub(crate) fn told(&self) -> UserRules<'_> {
        let Self {
            kept,
            dropped,
            only,
        } = self;
        UserRules {
            kept,
            dropped,
            only: only.as_deref(),
        }
    }

    /// The headers to keep, in order, repeats included.
    pub(crate) fn select<'a>(
        &'a self,
        headers: &'a HeaderMap,
    ) -> impl Iterator<Item = (&'a HeaderName, &'a http::HeaderValue)> {
        headers
            .iter()
            .filter(move |(name, _)| self.keeps(name, headers))
    }

    fn keeps(&self, name: &HeaderName, headers: &HeaderMap) -> bool {
        if self.dropped.contains(name) {
            return false;
        }
        if self.kept.contains(name) {
            return true;
        }
        let text = name.as_str();
        if let Some(only) = &self.only {
            return only.contains(name) || TELLING.contains(&text);
        }
        !(DROPPED.contains(name)
            || DROPPED_BY_NAME.contains(&text)
            || DROPPED_BY_PREFIX.iter().any(|p| text.starts_with(p))
            || named_by_connection(name, headers))
    }
}

/// `Connection: x-foo` makes `X-Foo` hop-by-hop too.
fn named_by_connection(name: &HeaderName, headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|value| {
        value.as_bytes().split(|&b| b == b',').any(|option| {
            option
                .trim_ascii()
                .eq_ignore_ascii_case(name.as_str().as_bytes())
        })
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn kept(rules: &HeaderRules, headers: &HeaderMap) -> Vec<String> {
        rules
            .select(headers)
            .map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn what_was_true_of_one_exchange_only_is_dropped() {
        let mut headers = map(&[
            ("location", "/orders/1"),
            ("link", "<a>"),
            ("link", "<b>"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("set-cookie", "a=1"),
            ("www-authenticate", "Basic"),
            ("x-b3-spanid", "1"),
            ("x-ratelimit-remaining", "3"),
            ("server-timing", "db;dur=1"),
        ]);
        for name in DROPPED {
            headers.insert(name, HeaderValue::from_static("x-hop"));
        }
        for name in DROPPED_BY_NAME {
            headers.insert(*name, HeaderValue::from_static("x"));
        }
        assert_eq!(
            kept(&HeaderRules::default(), &headers),
            ["location: /orders/1", "link: <a>", "link: <b>"]
        );
    }

    #[test]
    fn of_a_list_no_other_header_is_kept() {
        let mut rules = HeaderRules::default();
        rules.only(vec![header::LOCATION]);
        rules.keep(header::ETAG);
        let headers = map(&[
            ("location", "/orders/1"),
            ("etag", "\"1\""),
            ("content-type", "text/plain"),
            ("content-encoding", "gzip"),
            ("grpc-encoding", "gzip"),
            ("connect-content-encoding", "gzip"),
            ("grpc-status", "0"),
            ("x-secret", "s"),
            ("link", "<a>"),
        ]);
        assert_eq!(
            kept(&rules, &headers),
            [
                "location: /orders/1",
                "etag: \"1\"",
                "content-type: text/plain",
                "content-encoding: gzip",
                "grpc-encoding: gzip",
                "connect-content-encoding: gzip",
                "grpc-status: 0"
            ]
        );
        rules.drop(header::CONTENT_TYPE);
        rules.drop(header::ETAG);
        assert_eq!(kept(&rules, &headers).len(), 5, "dropped is dropped");
    }

    #[test]
    fn framing_is_never_kept() {
        for name in FRAMING {
            let mut rules = HeaderRules::default();
            rules.only(vec![header::ETAG, name.clone()]);
            assert_eq!(rules.forbidden(), Some(name));
            let mut rules = HeaderRules::default();
            assert_eq!(rules.forbidden(), None);
            rules.keep(name.clone());
            assert_eq!(rules.forbidden(), Some(name));
        }
    }

    #[test]
    fn the_user_may_add_to_either_side() {
        let mut rules = HeaderRules::default();
        rules.keep(header::SET_COOKIE);
        rules.drop(header::ETAG);
        let headers = map(&[("set-cookie", "a=1"), ("etag", "\"1\""), ("x", "y")]);
        assert_eq!(kept(&rules, &headers), ["set-cookie: a=1", "x: y"]);
    }
}
