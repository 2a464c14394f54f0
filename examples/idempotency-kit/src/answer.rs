//! An answer, read to its end.

use std::fmt;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use crate::shown::shown;

/// What services call the header that marks a replay.
pub(crate) const MARKERS: [&str; 5] = [
    "idempotent-replayed",
    "idempotency-replay",
    "idempotency-replayed",
    "x-idempotent-replayed",
    "x-idempotency-replayed",
];

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// What was sent, in one line.
    pub(crate) request: String,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the body came to its end.
    pub(crate) complete: bool,
    pub(crate) ended: Instant,
}

impl Answer {
    /// The header that marks it as a replay.
    pub(crate) fn marker(&self) -> Option<&'static str> {
        let marked = |name: &&str| {
            self.headers
                .get(*name)
                .is_some_and(|value| value == "true" || value == "1")
        };
        MARKERS.iter().find(|name| marked(name)).copied()
    }

    pub(crate) fn is(&self, status: u16) -> bool {
        self.status.as_u16() == status
    }

    pub(crate) fn ok(&self) -> bool {
        self.status.is_success()
    }

    /// The values of a header, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<&[u8]> {
        self.headers
            .get_all(name)
            .iter()
            .map(http::HeaderValue::as_bytes)
            .collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The `code` of a problem document, if it has one.
    pub(crate) fn code(&self) -> Option<String> {
        let problem: Value = serde_json::from_slice(&self.body).ok()?;
        Some(problem["code"].as_str()?.to_owned())
    }

    /// Whether it says that the first run is still going.
    pub(crate) fn busy(&self) -> bool {
        let over = ["response-not-kept", "outcome-unknown"];
        self.is(409)
            && !self
                .code()
                .is_some_and(|code| over.contains(&code.as_str()))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 160;
        write!(f, "{}", self.status.as_u16())?;
        if let Some(marker) = self.marker() {
            write!(f, " ({marker})")?;
        }
        match self.body.is_empty() {
            true => write!(f, " without a body")?,
            false => write!(f, " {}", shown(&self.body, SHOWN))?,
        }
        if !self.complete {
            write!(f, " — and then the body broke off")?;
        }
        Ok(())
    }
}
