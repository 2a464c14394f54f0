//! Times in keys.

use std::time::Duration;

use super::{ENOUGH_BESIDE_A_TIMESTAMP, LETTER_OF_A_WORD, bits};
use crate::Clock;

/// How far from now a date or a count of seconds is taken for *now*: a day for clocks and queues, and half
/// a day for a local time without its zone.
const AROUND_NOW: Duration = Duration::from_secs(36 * 3600);

/// Whether there is a time of now in it, and little beside.
pub(super) fn is_timestamp(text: &[u8], clock: &dyn Clock) -> bool {
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
pub(super) fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
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
