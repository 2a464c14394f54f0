//! Which of the headers that matter here a request has. A request has few headers, and most of these it has
//! not: one look at all it has costs a third of looking each of these up.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, COOKIE,
    EXPECT, HOST, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
    PRAGMA, PROXY_AUTHORIZATION, RANGE, UPGRADE,
};
use http::{HeaderMap, HeaderName};

static NAMES: [HeaderName; 22] = [
    AUTHORIZATION,
    PROXY_AUTHORIZATION,
    COOKIE,
    RANGE,
    IF_RANGE,
    UPGRADE,
    EXPECT,
    CONNECTION,
    CACHE_CONTROL,
    PRAGMA,
    HOST,
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-host"),
    ACCEPT,
    ACCEPT_ENCODING,
    ACCEPT_LANGUAGE,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_MATCH,
    IF_UNMODIFIED_SINCE,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-auth-token"),
];

/// Whom the response is for, unless the header is part of the key (Squid CVE-2016-10003). The last two are no
/// standard, and yet the credentials of many an API.
pub(super) const CREDENTIALS: Headers = Headers::from_to(0, 3).or(Headers::from_to(20, 22));

/// A part must not be served as the whole (gregjones/httpcache #51); an upgrade is the matter of one
/// connection.
pub(super) const NEVER: Headers = Headers::from_to(3, 7);

pub(super) const CONNECTIONS: Headers = Headers::from_to(7, 8);
pub(super) const CACHE_CONTROLS: Headers = Headers::from_to(8, 9);
pub(super) const PRAGMAS: Headers = Headers::from_to(9, 10);

/// Of the authority. Behind a proxy `X-Forwarded-*` are what scheme and authority are without one: the
/// redirect to https that a plain request gets is no answer to a secure one.
pub(super) const AUTHORITY: Headers = Headers::from_to(10, 13);

/// In every key that is not the user's own.
pub(super) const IN_KEY: Headers = Headers::from_to(13, 20);

/// A set of those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Headers(u32);

impl Headers {
    const NONE: Self = Self(0);

    const fn from_to(from: u32, to: u32) -> Self {
        Self((1 << to) - (1 << from))
    }

    const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are there.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        headers
            .keys()
            .fold(Self::NONE, |set, name| Self(set.0 | Self::named(name).0))
    }

    /// The set of this one, if it is one of those.
    pub(super) fn named(name: &HeaderName) -> Self {
        Self(match name.as_str() {
            "authorization" => 1,
            "proxy-authorization" => 1 << 1,
            "cookie" => 1 << 2,
            "range" => 1 << 3,
            "if-range" => 1 << 4,
            "upgrade" => 1 << 5,
            "expect" => 1 << 6,
            "connection" => 1 << 7,
            "cache-control" => 1 << 8,
            "pragma" => 1 << 9,
            "host" => 1 << 10,
            "x-forwarded-proto" => 1 << 11,
            "x-forwarded-host" => 1 << 12,
            "accept" => 1 << 13,
            "accept-encoding" => 1 << 14,
            "accept-language" => 1 << 15,
            "if-none-match" => 1 << 16,
            "if-modified-since" => 1 << 17,
            "if-match" => 1 << 18,
            "if-unmodified-since" => 1 << 19,
            "x-api-key" => 1 << 20,
            "x-auth-token" => 1 << 21,
            _ => 0,
        })
    }

    pub(super) fn has(self, some: Self) -> bool {
        self.0 & some.0 != 0
    }

    /// Its names, always in the same order.
    pub(super) fn each(self) -> impl Iterator<Item = &'static HeaderName> {
        NAMES
            .iter()
            .enumerate()
            .filter_map(move |(n, name)| (self.0 & (1 << n) != 0).then_some(name))
    }

    pub(super) fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_header_has_its_own_place() {
        for (n, name) in NAMES.iter().enumerate() {
            assert_eq!(Headers::named(name), Headers(1 << n), "{name}");
        }
        assert_eq!(Headers::named(&http::header::DATE), Headers::NONE);
        assert_eq!(IN_KEY.each().next(), Some(&ACCEPT));
        assert_eq!(AUTHORITY.each().count(), 3);
        let all = [
            CREDENTIALS,
            NEVER,
            CONNECTIONS,
            CACHE_CONTROLS,
            PRAGMAS,
            AUTHORITY,
            IN_KEY,
        ];
        let count = |set: &Headers| set.each().count();
        assert_eq!(all.iter().map(count).sum::<usize>(), NAMES.len());
    }
}
