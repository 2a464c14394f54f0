//! Keys that are not likely to name an intent.

use std::time::Duration;

use crate::Clock;

/// How far from now a date or a count of seconds is taken for *now*: a day for clocks and queues, and half
/// a day for a local time without its zone.
const AROUND_NOW: Duration = Duration::from_secs(36 * 3600);
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

/// Whether there is a time of now in it, and little beside.
fn is_timestamp(text: &[u8], clock: &dyn Clock) -> bool {
    let mut found = false;
    let mut beside = 0;
    let mut at = 0;
    let mut kept = 0;
    while at < text.len() {
        if !text[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let digits = digits(&text[at..]);
        let time = date_time(&text[at..]).or_else(|| count_since_1970(&text[at..at + digits]));
        match time {
            Some((time, length)) if time.abs_diff(clock.unix_time()) <= AROUND_NOW => {
                found = true;
                beside += bits(&text[kept..at], LETTER_OF_A_WORD);
                at += length;
                kept = at;
            }
            _ => at += digits,
        }
    }
    found && beside + bits(&text[kept..], LETTER_OF_A_WORD) < ENOUGH_BESIDE_A_TIMESTAMP
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|b| b.is_ascii_digit()).count()
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |n: u64, d| {
        n.wrapping_mul(10).wrapping_add(u64::from(d - b'0'))
    })
}

/// A count of seconds, ms, µs or ns since 1970, and how long it is written. Its length tells the unit until
/// the year 2286.
fn count_since_1970(digits: &[u8]) -> Option<(Duration, usize)> {
    let count = number(digits);
    let time = match digits.len() {
        10 => Duration::from_secs(count),
        13 => Duration::from_millis(count),
        16 => Duration::from_micros(count),
        19 => Duration::from_nanos(count),
        _ => return None,
    };
    Some((time, digits.len()))
}

/// An ISO 8601 date and time at the beginning, long or short (`20250301T1200`), with any sign between its
/// parts that a file name may have; and how long it is written. Without a `T` the seconds must be there:
/// `20250301-1200` is also how order numbers are written. The zone is not read.
fn date_time(text: &[u8]) -> Option<(Duration, usize)> {
    let mut input = Reader { text, at: 0 };
    let year = input.number(4)?;
    let sign = input.sign(b"-/._");
    let month = input.number(2)?;
    if sign.is_some() && input.sign(b"-/._") != sign {
        return None;
    }
    let day = input.number(2)?;
    let t = input.sign(b"Tt").is_some();
    if !t {
        input.sign(if sign.is_some() { b" _-." } else { b" _" });
    }
    let hour = input.number(2)?;
    input.sign(b":-._h");
    let minute = input.number(2)?;
    input.sign(b":-._m");
    let second = match input.number(2) {
        Some(second) => second,
        None if t => 0,
        None => return None,
    };
    if input.sign(b".,").is_some() || !t {
        input.at += digits(&text[input.at..]);
    }
    input.sign(b"Zz");
    let valid = (1970..2286).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    valid.then_some((Duration::from_secs(seconds), input.at))
}

/// In the Gregorian calendar, for years from 1970. March begins the year here, so that the leap day is its
/// last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month < 3 {
        (year.saturating_sub(1), month + 9)
    } else {
        (year, month.saturating_sub(3))
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    days.saturating_sub(719_469)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self, length: usize) -> Option<u64> {
        let digits = self.text.get(self.at..self.at + length)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.at += length;
        Some(number(digits))
    }

    fn sign(&mut self, signs: &[u8]) -> Option<u8> {
        let sign = *self.text.get(self.at).filter(|b| signs.contains(b))?;
        self.at += 1;
        Some(sign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ManualClock;

    /// 2026-11-29T20:21:11Z.
    const NOW: u64 = 1_795_983_671;

    fn clock() -> ManualClock {
        let clock = ManualClock::new();
        clock.jump_unix_ahead(Duration::from_secs(NOW) - clock.unix_time());
        clock
    }

    #[track_caller]
    fn assert_all(weakness: Option<KeyWeakness>, keys: &[&str]) {
        let clock = clock();
        for key in keys {
            assert_eq!(KeyWeakness::of(key, &clock), weakness, "{key}");
        }
    }

    #[test]
    fn the_time_of_the_attempt_is_no_intent() {
        assert_all(
            Some(KeyWeakness::Timestamp),
            &[
                "1795983671",
                "1795983671123",
                "1795983671123456",
                "1795983671123456789",
                "1795983671.123",
                "1795900000",
                "2026-11-29T20:21:11Z",
                "2026-11-29T20:21:11.123456+01:00",
                "2026-11-29T21:21",
                "2026-11-29 20:21:11",
                "20261129T202111Z",
                "20261129202111",
                "20261129202111123",
                "2026-11-29_20-21-11",
                "order-1795983671123",
                "create-payment-intent-1795983671123",
                "user-8812-1795983671123",
                "user8812@2026-11-29T20:21:11Z",
            ],
        );
    }

    #[test]
    fn another_time_than_now_may_be_the_intent() {
        assert_all(
            None,
            &[
                "1495983671",
                "2027-03-01T10:00:00Z",
                "slot-2027-03-01T10:00",
                "invoice-2026-11-29",
                "20261129-000123",
                "ORD-20261129-0001",
            ],
        );
    }

    #[test]
    fn a_time_with_enough_beside_it_is_a_key() {
        assert_all(
            None,
            &[
                "1795983671123-8f3a9c2e5b7d",
                "req_1795983671_k3v9x2m8q1zt",
                "8e03978e-40d5-43dd-bc93-179598367112",
            ],
        );
    }

    #[test]
    fn small_numbers_are_counters() {
        assert_all(
            Some(KeyWeakness::Counter),
            &["0", "1", "42", "007", "100000001", "795983671"],
        );
    }

    #[test]
    fn plain_keys_are_anybodys() {
        assert_all(
            Some(KeyWeakness::LowEntropy),
            &[
                "k",
                "key",
                "test",
                "null",
                "undefined",
                "[object Object]",
                "aaaaaaaaaaaaaaaaaaaaaaaa",
                "abcdefghijklmnop",
                "0000000000000",
                "12345678901234567890",
                "00000000-0000-0000-0000-000000000000",
                "00000000-0000-0000-0000-000000000042",
                "A-17",
            ],
        );
        assert_all(
            None,
            &[
                "ORD-2025-000000",
                "order-17-of-ada",
                "8e03978e",
                "inv/7/2025",
            ],
        );
    }

    #[test]
    fn days_are_counted_right() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((1972, 2, 29), 789),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 29), NOW / 86_400),
            ((2100, 3, 1), 47_541),
        ] {
            assert_eq!(days_since_1970(date.0, date.1, date.2), days, "{date:?}");
        }
    }

    /// SplitMix64: the same keys in every run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        }

        fn wide(&mut self) -> u128 {
            u128::from(self.next()) << 64 | u128::from(self.next())
        }

        fn text(&mut self, alphabet: &[u8], length: usize) -> String {
            let one = |_| {
                let n = self.next() % alphabet.len() as u64;
                char::from(alphabet[usize::try_from(n).unwrap()])
            };
            (0..length).map(one).collect()
        }
    }

    fn uuid(bits: u128, version: u128) -> String {
        let bits = bits & !(0xF << 76) & !(0x3 << 62) | version << 76 | 0x2 << 62;
        let hex = format!("{bits:032x}");
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        parts.join("-")
    }

    fn ulid(bits: u128) -> String {
        let alphabet = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
        let one = |i: u32| {
            let index = usize::try_from((bits >> (125 - 5 * i)) & 31).unwrap();
            char::from(alphabet[index])
        };
        (0..26).map(one).collect()
    }

    #[test]
    fn the_documented_rates_are_the_measured_ones() {
        const N: usize = 100_000;
        const MS: u128 = NOW as u128 * 1_000;
        let nanoid = b"useandom-26T198340PX75pxJACKVERYMINDBUSHWOLF_GQZbfghjklqvwyzrict";
        type Kind<'a> = (&'a str, usize, Box<dyn Fn(&mut Random) -> String + 'a>);
        let kinds: [Kind<'_>; 8] = [
            ("UUIDv4", 0, Box::new(|r| uuid(r.wide(), 4))),
            (
                "UUIDv7",
                0,
                Box::new(|r| {
                    uuid(
                        (MS + u128::from(r.next() % 1_000)) << 80 | r.wide() >> 48,
                        7,
                    )
                }),
            ),
            ("ULID", 0, Box::new(|r| ulid(MS << 80 | r.wide() >> 48))),
            ("nanoid", 0, Box::new(|r| r.text(nanoid, 21))),
            (
                "ORD-2025-000123",
                0,
                Box::new(|r| format!("ORD-2025-{:06}", r.next() % 1_000_000)),
            ),
            (
                "ORD-20261129-0001",
                0,
                Box::new(|r| format!("ORD-20261129-{:04}", r.next() % 10_000)),
            ),
            (
                "ten digits",
                50,
                Box::new(|r| format!("{}{}", 1 + r.next() % 9, r.text(b"0123456789", 9))),
            ),
            ("nine digits", N, Box::new(|r| r.text(b"0123456789", 9))),
        ];
        let clock = clock();
        let mut random = Random(1);
        for (kind, documented, make) in kinds {
            let weak = (0..N)
                .filter(|_| KeyWeakness::of(&make(&mut random), &clock).is_some())
                .count();
            if documented == 0 || documented == N {
                assert_eq!(weak, documented, "{kind}");
            } else {
                assert!(weak < documented, "{kind}: {weak}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[ -~]{0,60}", digits in "[0-9 T:.-]{0,60}") {
            let clock = clock();
            let _ = KeyWeakness::of(&text, &clock);
            let _ = KeyWeakness::of(&digits, &clock);
        }
    }
}
