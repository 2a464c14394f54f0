//! Keys that are not likely to name an intent.

mod time;

#[cfg(test)]
mod tests;

use crate::Clock;
use time::is_timestamp;

/// A key of fewer bits than this is too plain.
const ENOUGH: u32 = 20 * TENTHS;
/// What must be left beside a timestamp for the key not to be one.
const ENOUGH_BESIDE_A_TIMESTAMP: u32 = 40 * TENTHS;
/// All-digit keys shorter than this are counters.
const COUNTER_DIGITS: usize = 10;
/// A run of letters of one case, this long or longer, is a word.
const WORD: usize = 4;

/// Bits are counted in tenths.
const TENTHS: u32 = 10;
/// log2 of 10.
const DIGIT: u32 = 33;
/// log2 of 26.
const LETTER: u32 = 47;
/// A letter of a word: English text has one to two bits each.
const LETTER_OF_A_WORD: u32 = 15;

/// What programs send when they have no key.
const PLACEHOLDERS: [&str; 8] = [
    "undefined",
    "unknown",
    "default",
    "string",
    "[object object]",
    "idempotency-key",
    "idempotencykey",
    "your-idempotency-key",
];

/// Why a client's key is not likely to name an intent: two intents may be given one key, or each attempt
/// at one intent a key of its own.
///
/// # The rule
///
/// - [`Timestamp`](Self::Timestamp): the key holds a count of seconds, ms, µs or ns since 1970 (10, 13, 16 or
///   19 digits), or an ISO 8601 date *and* time, within 36 hours of now, and less than 40 bits beside it. A
///   date alone is none: "the invoice of 2025-03-01" is an intent.
/// - [`Counter`](Self::Counter): digits only, fewer than ten.
/// - [`LowEntropy`](Self::LowEntropy): fewer than 20 bits, or a known placeholder such as `undefined`. Counted
///   from above: 3.3 bits a digit, 4.7 a letter, nothing for a sign, nor for what goes on as it
///   began (`aaaa`, `12345`, `cba`). Beside a timestamp a word counts 1.5 bits a letter.
///
/// # How often it is wrong
///
/// Measured by a test of this crate, on 100,000 random keys of each kind: UUIDs of version 4 and of version 7
/// made now, ULIDs made now, nanoids (21 characters), order numbers like `ORD-2025-000123`: **none** is held
/// for weak. Order numbers of ten random digits: fewer than 0.05 %; of nine digits or fewer: all, since they
/// cannot be told from counters. A date and a serial of six digits in one (`20250301000123`) may read as a time of
/// that day.
///
/// It does not see a timestamp behind a long random part (`{order id}-{now}`), one in another base, nor keys
/// that are too few only when one sees many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyWeakness {
    /// The time of the attempt: a retry brings another one, two users may bring the same.
    Timestamp,
    /// A small number: the next process begins at 1 again.
    Counter,
    /// So short or so plain that others will choose it too.
    LowEntropy,
}

impl KeyWeakness {
    /// Judges the text of a key. Reads the clock's wall time only where the text may be a time. Allocates
    /// nothing.
    pub fn of(text: &str, clock: &dyn Clock) -> Option<Self> {
        let text = text.as_bytes();
        if is_timestamp(text, clock) {
            Some(Self::Timestamp)
        } else if text.len() < COUNTER_DIGITS && text.iter().all(u8::is_ascii_digit) {
            Some(Self::Counter)
        } else if bits(text, LETTER) < ENOUGH || is_placeholder(text) {
            Some(Self::LowEntropy)
        } else {
            None
        }
    }

    /// In a word, for logs and problem documents: `timestamp`, `counter`, `low-entropy`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timestamp => "timestamp",
            Self::Counter => "counter",
            Self::LowEntropy => "low-entropy",
        }
    }

    /// What is wrong, in a sentence that says the mend.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Timestamp => {
                "the key looks like the time of the attempt: draw a random one (a UUID) per intent, and send it again with each retry"
            }
            Self::Counter => {
                "the key looks like a counter, which another client or the next process counts too: draw a random one (a UUID) per intent"
            }
            Self::LowEntropy => {
                "the key is so short or plain that others will choose it too: draw a random one (a UUID) per intent"
            }
        }
    }
}

fn is_placeholder(text: &[u8]) -> bool {
    PLACEHOLDERS
        .iter()
        .any(|p| text.eq_ignore_ascii_case(p.as_bytes()))
}

/// At most how many bits are in this, in tenths. `in_word` is what a letter of a word counts.
fn bits(text: &[u8], in_word: u32) -> u32 {
    let mut bits = 0;
    let mut before: Option<u8> = None;
    let mut step = None;
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let kind = letter_case(first);
        let run = rest.iter().take_while(|b| letter_case(**b) == kind).count();
        let letter = if run >= WORD { in_word } else { LETTER };
        for byte in rest[..run].iter().map(u8::to_ascii_lowercase) {
            let new = match byte {
                b'0'..=b'9' => DIGIT,
                b'a'..=b'z' => letter,
                _ => continue,
            };
            let next = before.map(|b| i16::from(byte) - i16::from(b));
            if step.is_none() || next != step || next.is_some_and(|n| n.abs() > 1) {
                bits += new;
            }
            (before, step) = (Some(byte), next);
        }
        rest = &rest[run..];
    }
    bits
}

/// Lower case, upper case, or no letter.
fn letter_case(byte: u8) -> Option<bool> {
    byte.is_ascii_alphabetic()
        .then_some(byte.is_ascii_uppercase())
}
