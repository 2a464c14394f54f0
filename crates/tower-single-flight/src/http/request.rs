//! Which requests may share, and what makes two of them equal.

use std::sync::Arc;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, COOKIE,
    EXPECT, HOST, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
    PRAGMA, PROXY_AUTHORIZATION, RANGE, UPGRADE,
};
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tower_claim::http::original_uri;

/// Whom the response is for, unless the header is part of the key (Squid CVE-2016-10003).
const CREDENTIALS: [HeaderName; 3] = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];

/// A part must not be served as the whole (gregjones/httpcache #51); an upgrade is the matter of one
/// connection.
const NEVER: [HeaderName; 4] = [RANGE, IF_RANGE, UPGRADE, EXPECT];

/// Behind a proxy they are what scheme and authority are without one: the redirect to https that a plain
/// request gets is no answer to a secure one.
const FORWARDED: [HeaderName; 2] = [
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-host"),
];

/// In every key that is not the user's own.
const IN_KEY: [HeaderName; 7] = [
    ACCEPT,
    ACCEPT_ENCODING,
    ACCEPT_LANGUAGE,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_MATCH,
    IF_UNMODIFIED_SINCE,
];

pub(super) type OwnKey = Arc<dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync>;

/// Makes keys of requests.
#[derive(Clone, Default)]
pub(super) struct KeyRule {
    /// Headers in the key beside the usual ones.
    pub(super) headers: Vec<HeaderName>,
    /// Credentials that are in the key, too, and bypass no more.
    pub(super) identity: Vec<HeaderName>,
    pub(super) without_authority: bool,
    pub(super) own: Option<OwnKey>,
}

/// How a request may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    Join,
    /// It must not get what was asked for before it came.
    LeadOnly,
    Never,
}

/// The leader's headers that are not in the key, kept until it is known whether the response varies by
/// them.
pub(super) type Asked = Vec<(HeaderName, HeaderValue)>;

/// Requests with other methods may have effects, and are never merged (undici #4817).
pub(super) fn is_safe(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

impl KeyRule {
    /// Of a safe request without a body.
    pub(super) fn sharing(&self, parts: &Parts) -> Sharing {
        let headers = &parts.headers;
        if headers.is_empty() {
            return Sharing::Join;
        }
        let has = |name: &HeaderName| headers.contains_key(name);
        let credential = |name: &HeaderName| has(name) && !self.identity.contains(name);
        if CREDENTIALS.iter().any(credential)
            || NEVER.iter().any(has)
            || tokens(headers, &CONNECTION).any(|t| t.eq_ignore_ascii_case(b"upgrade"))
            || has_directive(headers, "no-store")
        {
            return Sharing::Never;
        }
        let no_cache = has_directive(headers, "no-cache")
            || (!has(&CACHE_CONTROL)
                && tokens(headers, &PRAGMA).any(|t| t.eq_ignore_ascii_case(b"no-cache")));
        if no_cache {
            Sharing::LeadOnly
        } else {
            Sharing::Join
        }
    }

    /// Every part with its length before it: no value can pretend to be another part (undici #5012).
    pub(super) fn key(&self, parts: &Parts) -> Option<Vec<u8>> {
        let mut key = Vec::with_capacity(192);
        // The method is in every key: a HEAD response has no body to give to a GET (tempesta #416).
        key.push(u8::from(parts.method == Method::HEAD));
        match &self.own {
            Some(own) => put(&mut key, &own(parts)?),
            None => self.put_target(&mut key, parts),
        }
        for name in self.headers.iter().chain(&self.identity) {
            put_header(&mut key, &parts.headers, name);
        }
        Some(key)
    }

    fn put_target(&self, key: &mut Vec<u8>, parts: &Parts) {
        let uri = original_uri(&parts.extensions, &parts.uri);
        if !self.without_authority {
            let authority = uri.authority().or(parts.uri.authority());
            put(key, uri.scheme().map_or("", Scheme::as_str).as_bytes());
            put(key, authority.map_or("", Authority::as_str).as_bytes());
            put_header(key, &parts.headers, &HOST);
            for name in &FORWARDED {
                put_header(key, &parts.headers, name);
            }
        }
        put(key, uri.path().as_bytes());
        // `/x` and `/x?` are different targets.
        key.push(u8::from(uri.query().is_some()));
        put(key, uri.query().unwrap_or("").as_bytes());
        for name in &IN_KEY {
            put_header(key, &parts.headers, name);
        }
    }

    /// Puts headers into the key that responses turned out to vary by.
    pub(super) fn extend(key: &mut Vec<u8>, headers: &HeaderMap, names: &[HeaderName]) {
        for name in names {
            put(key, name.as_str().as_bytes());
            put_header(key, headers, name);
        }
    }

    fn in_key(&self, name: &HeaderName) -> bool {
        (self.own.is_none() && IN_KEY.contains(name))
            || self.headers.contains(name)
            || self.identity.contains(name)
    }

    /// What a leader keeps of its headers. Allocates nothing where there are no others.
    pub(super) fn asked(&self, headers: &HeaderMap) -> Asked {
        headers
            .iter()
            .filter(|(name, _)| !self.in_key(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Whether a follower sent the same values of this header as the leader.
    pub(super) fn same(&self, leader: &Asked, follower: &HeaderMap, name: &HeaderName) -> bool {
        if self.in_key(name) {
            return true;
        }
        let leader = leader.iter().filter(|(n, _)| n == name).map(|(_, v)| v);
        leader.eq(follower.get_all(name))
    }
}

fn put(key: &mut Vec<u8>, part: &[u8]) {
    key.extend_from_slice(&(part.len() as u64).to_le_bytes());
    key.extend_from_slice(part);
}

fn put_header(key: &mut Vec<u8>, headers: &HeaderMap, name: &HeaderName) {
    // A number before each line and none after the last: two lines are not one with a comma.
    for value in headers.get_all(name) {
        key.push(1);
        put(key, value.as_bytes());
    }
    key.push(0);
}

/// The members of a comma-separated header. Bytes, not text: one `é` must not hide a `private` beside it.
pub(super) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .into_iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// Whether `Cache-Control` has this directive, with or without an argument.
pub(super) fn has_directive(headers: &HeaderMap, directive: &str) -> bool {
    headers.contains_key(CACHE_CONTROL)
        && tokens(headers, &CACHE_CONTROL).any(|token| {
            let name = token.split(|byte| *byte == b'=').next().unwrap_or(token);
            name.trim_ascii_end()
                .eq_ignore_ascii_case(directive.as_bytes())
        })
}
