//! Which requests may share, and what makes two of them equal.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONNECTION, PRAGMA};
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tower_claim::http::original_uri;

use super::present::{
    AUTHORITY, CACHE_CONTROLS, CONNECTIONS, CREDENTIALS, Headers, IN_KEY, NEVER, PRAGMAS,
};

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
    pub(super) fn sharing(&self, headers: &HeaderMap, present: Headers) -> Sharing {
        let mut credentials = present.and(CREDENTIALS).each();
        if credentials.any(|name| !self.identity.contains(name))
            || present.has(NEVER)
            || (present.has(CONNECTIONS)
                && tokens(headers, &CONNECTION).any(|t| t.eq_ignore_ascii_case(b"upgrade")))
            || (present.has(CACHE_CONTROLS) && has_directive(headers, "no-store"))
        {
            return Sharing::Never;
        }
        let no_cache = if present.has(CACHE_CONTROLS) {
            has_directive(headers, "no-cache")
        } else {
            present.has(PRAGMAS)
                && tokens(headers, &PRAGMA).any(|t| t.eq_ignore_ascii_case(b"no-cache"))
        };
        if no_cache {
            Sharing::LeadOnly
        } else {
            Sharing::Join
        }
    }

    /// Every part with its length before it: no value can pretend to be another part (undici #5012).
    pub(super) fn key(&self, parts: &Parts, present: Headers) -> Option<Vec<u8>> {
        let mut key = Vec::with_capacity(192);
        // The method is in every key: a HEAD response has no body to give to a GET (tempesta #416).
        key.push(u8::from(parts.method == Method::HEAD));
        match &self.own {
            Some(own) => put(&mut key, &own(parts)?),
            None => self.put_target(&mut key, parts, present),
        }
        for name in self.headers.iter().chain(&self.identity) {
            put_header(&mut key, &parts.headers, name);
        }
        Some(key)
    }

    fn put_target(&self, key: &mut Vec<u8>, parts: &Parts, present: Headers) {
        let uri = original_uri(&parts.extensions, &parts.uri);
        if !self.without_authority {
            let authority = uri.authority().or(parts.uri.authority());
            put(key, uri.scheme().map_or("", Scheme::as_str).as_bytes());
            put(key, authority.map_or("", Authority::as_str).as_bytes());
            put_headers(key, &parts.headers, present, AUTHORITY);
        }
        put(key, uri.path().as_bytes());
        // `/x` and `/x?` are different targets.
        key.push(u8::from(uri.query().is_some()));
        put(key, uri.query().unwrap_or("").as_bytes());
        put_headers(key, &parts.headers, present, IN_KEY);
    }

    /// Puts headers into the key that responses turned out to vary by.
    pub(super) fn extend(key: &mut Vec<u8>, headers: &HeaderMap, names: &[HeaderName]) {
        for name in names {
            put(key, name.as_str().as_bytes());
            put_header(key, headers, name);
        }
    }

    fn in_key(&self, name: &HeaderName) -> bool {
        (self.own.is_none() && IN_KEY.has(Headers::named(name)))
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

/// Of a fixed set, which of them are there, then those.
fn put_headers(key: &mut Vec<u8>, headers: &HeaderMap, present: Headers, set: Headers) {
    let there = present.and(set);
    key.extend_from_slice(&there.to_bytes());
    for name in there.each() {
        put_header(key, headers, name);
    }
}

/// How many lines, then each: two lines are not one with a comma, an empty one is not none.
fn put_header(key: &mut Vec<u8>, headers: &HeaderMap, name: &HeaderName) {
    let lines = headers.get_all(name);
    key.extend_from_slice(&(lines.iter().count() as u64).to_le_bytes());
    for value in lines {
        put(key, value.as_bytes());
    }
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
