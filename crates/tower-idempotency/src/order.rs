//! Layers in the wrong order, as far as it shows.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION, CONTENT_ENCODING, COOKIE, WWW_AUTHENTICATE,
};
use http::{StatusCode, request, response};
use tower_claim::Code;

use crate::counts::Counters;

/// A layer that stands on the wrong side of this one, or a setting that is missing for the place where this one stands.
///
/// Each is warned of once by each layer value (feature `tracing`) and counted
/// ([`Counts::misorders`](crate::Counts::misorders)): when `layer()` is called, where the type of the service
/// inside names it; else by the first request or answer that shows it. What was found is told by
/// [`IdempotencyLayer::misorders`](crate::IdempotencyLayer::misorders). Nothing else changes: it is a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Misorder {
    /// A request came with credentials, and nobody says whose it is: two users who send one key get one answer.
    NoScope,
    /// An authentication stands inside: a replay does not pass it.
    AuthenticationInside,
    /// A compression stands inside: every repeat gets what the first caller accepted, and one that does not accept it is
    /// told 409 `response-not-kept`.
    CompressionInside,
    /// The layer for CORS stands inside: a browser is not let see refusals.
    CorsInside,
    /// What catches panics stands inside: behind the point of no return its 500 is kept as the answer.
    CatchPanicInside,
    /// The board stands inside: it shows neither who waits here nor who is refused.
    StageInside,
}

/// All, each with a bit of its own.
const ALL: [Misorder; 6] = [
    Misorder::NoScope,
    Misorder::AuthenticationInside,
    Misorder::CompressionInside,
    Misorder::CorsInside,
    Misorder::CatchPanicInside,
    Misorder::StageInside,
];

/// Where the services of well-known layers live that belong outside.
const BELONG_OUTSIDE: [(&str, Misorder); 6] = [
    (
        "tower_http::auth::require_authorization::",
        Misorder::AuthenticationInside,
    ),
    (
        "tower_http::auth::async_require_authorization::",
        Misorder::AuthenticationInside,
    ),
    ("tower_http::compression::", Misorder::CompressionInside),
    ("tower_http::cors::", Misorder::CorsInside),
    ("tower_http::catch_panic::", Misorder::CatchPanicInside),
    ("tower_stage::", Misorder::StageInside),
];

impl Misorder {
    /// What to do about it.
    pub const fn mend(self) -> &'static str {
        match self {
            Self::NoScope => {
                "set `scope` from what an authentication outside of this layer has found, or say `one_tenant`"
            }
            Self::AuthenticationInside => {
                "put authentication outside of IdempotencyLayer, and set `scope` from what it finds"
            }
            Self::CompressionInside => "put compression outside of IdempotencyLayer",
            Self::CorsInside => "put the layer for CORS outside of IdempotencyLayer",
            Self::CatchPanicInside => "put what catches panics outside of IdempotencyLayer",
            Self::StageInside => "put StageLayer outside of IdempotencyLayer",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Misorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoScope => "a request has credentials, and IdempotencyLayer has no scope",
            Self::AuthenticationInside => "an authentication stands inside of IdempotencyLayer",
            Self::CompressionInside => "a compression stands inside of IdempotencyLayer",
            Self::CorsInside => "the layer for CORS stands inside of IdempotencyLayer",
            Self::CatchPanicInside => "panics are caught inside of IdempotencyLayer",
            Self::StageInside => "StageLayer stands inside of IdempotencyLayer",
        })
    }
}

/// What one layer value has found.
#[derive(Debug)]
pub(crate) struct Order {
    looked_for: u8,
    found: AtomicU8,
}

impl Order {
    /// A scope is missed where nobody says whose a request is, nor that this does not matter.
    pub(crate) fn new(misses_scope: bool) -> Self {
        let looked_for = match misses_scope {
            true => u8::MAX,
            false => !Misorder::NoScope.bit(),
        };
        Self {
            looked_for,
            found: AtomicU8::new(0),
        }
    }

    pub(crate) fn found(&self) -> Vec<Misorder> {
        let found = self.found.load(Ordering::Relaxed);
        let is_found = |misorder: &Misorder| found & misorder.bit() != 0;
        ALL.into_iter().filter(is_found).collect()
    }

    /// By the type of the service inside, at start-up. A service in a box does not tell.
    pub(crate) fn look_at_service<S>(&self, counters: &Counters) {
        let name = std::any::type_name::<S>();
        for (path, misorder) in BELONG_OUTSIDE {
            self.note(misorder, counters, || name.contains(path));
        }
    }

    pub(crate) fn look_at_request(&self, parts: &request::Parts, counters: &Counters) {
        self.note(Misorder::NoScope, counters, || {
            [AUTHORIZATION, COOKIE]
                .iter()
                .any(|credentials| parts.headers.contains_key(credentials))
        });
    }

    pub(crate) fn look_at_answer(&self, head: &response::Parts, counters: &Counters) {
        // A refusal of a layer of this family is no sign of another.
        if head.extensions.get::<Code>().is_some() {
            return;
        }
        let headers = &head.headers;
        self.note(Misorder::AuthenticationInside, counters, || {
            let asks_who =
                head.status == StatusCode::UNAUTHORIZED && headers.contains_key(WWW_AUTHENTICATE);
            asks_who || head.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
        });
        self.note(Misorder::CompressionInside, counters, || {
            headers.contains_key(CONTENT_ENCODING)
        });
        self.note(Misorder::CorsInside, counters, || {
            headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN)
        });
    }

    /// Costs one load where it was found before.
    fn note(&self, misorder: Misorder, counters: &Counters, is_there: impl FnOnce() -> bool) {
        let bit = misorder.bit();
        if self.looked_for & bit == 0
            || self.found.load(Ordering::Relaxed) & bit != 0
            || !is_there()
            || self.found.fetch_or(bit, Ordering::Relaxed) & bit != 0
        {
            return;
        }
        counters.misorders.add();
        counters.meter.misorder(misorder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_bit_of_its_own() {
        let bits = ALL
            .iter()
            .fold(0, |bits: u8, misorder| bits | misorder.bit());
        assert_eq!(bits.count_ones() as usize, ALL.len());
    }
}
