//! Parameters, and how the protocol's words are written as such.

use std::time::Duration;

use tower_claim::engine::span_micros;
use tower_claim::store::Value;
use tower_claim::{Key, LapsePolicy, Nonce, Settings, Token};

/// A parameter, named after its SQL type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Param {
    /// `bigint`.
    Int(Option<i64>),
    /// `integer`.
    Small(i32),
    /// `boolean`.
    Flag(bool),
    /// `text`.
    Text(String),
    /// `bytea`.
    Bytes(Option<Vec<u8>>),
    /// `bytea[]`.
    BytesList(Vec<Vec<u8>>),
    /// `bigint[]`.
    IntList(Vec<Option<i64>>),
}

/// PostgreSQL's text has no zero: it is written as `␀0`, and a `␀` as `␀␀`. [`plain`] reads it.
pub(super) fn text(plain: &str) -> String {
    plain
        .replace('\u{2400}', "\u{2400}\u{2400}")
        .replace('\0', "\u{2400}0")
}

/// The text that was [written](text). What nobody wrote so (a hand, an earlier version) is read as it stands.
pub(super) fn plain(written: &str) -> String {
    let mut parts = written.split('\u{2400}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    while let Some(part) = parts.next() {
        if let Some(rest) = part.strip_prefix('0') {
            plain.push('\0');
            plain.push_str(rest);
        } else {
            plain.push('\u{2400}');
            // Of a pair the second is spent; what follows it is text.
            plain.push_str(match part {
                "" => parts.next().unwrap_or_default(),
                part => part,
            });
        }
    }
    plain
}

pub(super) fn millis(wait: Duration) -> i32 {
    i32::try_from(wait.as_millis()).unwrap_or(i32::MAX).max(1)
}

pub(super) fn key(key: Key) -> Param {
    Param::Bytes(Some(key.as_bytes().to_vec()))
}

pub(super) fn nonce(nonce: Nonce) -> Param {
    Param::Bytes(Some(nonce.as_bytes().to_vec()))
}

#[expect(clippy::cast_possible_wrap, reason = "tokens are below 2^53")]
pub(super) fn number(token: Token) -> i64 {
    token.get() as i64
}

pub(super) fn token(token: Token) -> Param {
    Param::Int(Some(number(token)))
}

pub(super) fn bytes(resource: &str) -> Param {
    Param::Bytes(Some(resource.as_bytes().to_vec()))
}

/// What people see of a resource's name.
pub(super) fn shown(resource: &str) -> Param {
    Param::Text(text(&resource.chars().take(200).collect::<String>()))
}

pub(super) fn value(value: &Value) -> Param {
    Param::Bytes(match value {
        Value::Kept(body) => Some(body.to_vec()),
        // What else there may be keeps no body.
        _ => None,
    })
}

/// Lease, cooling, least hold, unfinished keep, what a lapse means, label.
pub(super) fn terms(settings: &Settings) -> [Param; 6] {
    let span = |span| Param::Int(Some(span_micros(span)));
    [
        span(settings.lease),
        span(settings.cooling),
        span(settings.min_hold),
        span(settings.unfinished_keep),
        Param::Text(
            match settings.on_lapse {
                LapsePolicy::TakeOver => "take over",
                // The stricter one, where there are others.
                _ => "hold",
            }
            .to_owned(),
        ),
        Param::Text(text(&settings.label)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_written() {
        for label in [
            "",
            "\0",
            "0",
            "\u{2400}",
            "\u{2400}0",
            "\x00\u{2400}\u{2400}0\x000\x00\x00\u{2400}",
            "seat 14",
        ] {
            let written = text(label);
            assert!(!written.contains('\0'));
            assert_eq!(plain(&written), label, "{written:?}");
        }
        assert_eq!(text("seat 14"), "seat 14");
    }

    #[test]
    fn a_label_that_a_hand_wrote_is_read_as_it_stands() {
        assert_eq!(plain("a\u{2400}b"), "a\u{2400}b");
        assert_eq!(plain("a\u{2400}"), "a\u{2400}");
    }
}
