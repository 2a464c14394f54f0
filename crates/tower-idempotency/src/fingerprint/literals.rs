//! The number literals of a JSON document, as they are written.

use std::cell::Cell;

/// Those of a document that is read at the same time, in its order. Found where the reader has found that there is one:
/// the document may be broken behind that.
pub(super) struct Literals<'a> {
    rest: Cell<&'a [u8]>,
}

impl<'a> Literals<'a> {
    pub(super) fn of(document: &'a [u8]) -> Self {
        Self {
            rest: Cell::new(document),
        }
    }

    /// The next one.
    pub(super) fn next(&self) -> Option<&'a [u8]> {
        let mut rest = self.rest.get();
        while let Some((&byte, behind)) = rest.split_first() {
            match byte {
                b'"' => rest = behind_string(behind),
                b'-' | b'0'..=b'9' => {
                    let length = rest.iter().position(|&byte| !is_of_a_number(byte));
                    let (literal, behind) = rest.split_at(length.unwrap_or(rest.len()));
                    self.rest.set(behind);
                    return Some(literal);
                }
                _ => rest = behind,
            }
        }
        None
    }
}

fn behind_string(mut rest: &[u8]) -> &[u8] {
    loop {
        rest = match rest {
            [b'\\', _, behind @ ..] => behind,
            [b'"', behind @ ..] => return behind,
            [_, behind @ ..] => behind,
            [] => return rest,
        };
    }
}

fn is_of_a_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

/// Whether this is the number that the literal writes, and no neighbour of it: whether it would be written so, by some
/// spelling of the shortest digits that tell it from all other doubles.
pub(super) fn is_written_back(literal: &[u8], number: f64) -> bool {
    let shortest = format!("{number:e}");
    match (Decimal::of(literal), Decimal::of(shortest.as_bytes())) {
        (Some(literal), Some(shortest)) => literal == shortest,
        _ => false,
    }
}

/// A decimal number in its one form: `digits · 10^exponent`, the digits without zeros around them.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    fn of(literal: &[u8]) -> Option<Self> {
        let (is_negative, literal) = match literal {
            [b'-', literal @ ..] => (true, literal),
            _ => (false, literal),
        };
        let e = literal.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, exponent) = literal.split_at(e.unwrap_or(literal.len()));
        let mut exponent: i64 = match exponent {
            [] => 0,
            [_, exponent @ ..] => std::str::from_utf8(exponent).ok()?.parse().ok()?,
        };
        let point = mantissa.iter().position(|&byte| byte == b'.');
        if let Some(point) = point {
            let behind = i64::try_from(mantissa.len() - point - 1).ok()?;
            exponent = exponent.checked_sub(behind)?;
        }
        let digits = mantissa.iter().filter(|&&byte| byte != b'.');
        let mut digits: Vec<u8> = digits.skip_while(|&&byte| byte == b'0').copied().collect();
        while digits.last() == Some(&b'0') {
            digits.pop();
            exponent = exponent.checked_add(1)?;
        }
        if digits.is_empty() {
            exponent = 0;
        }
        Some(Self {
            is_negative,
            digits,
            exponent,
        })
    }
}
