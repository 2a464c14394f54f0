//! Bytes as lower-case hex digits and back.

use std::fmt;

pub(crate) fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    out
}

pub(crate) fn decode<const N: usize>(digits: &str) -> Result<[u8; N], InvalidHex> {
    let digits = digits.as_bytes();
    if digits.len() != N * 2 {
        return Err(InvalidHex);
    }
    let nibble = |b: u8| {
        char::from(b)
            .to_digit(16)
            .map(|d| d as u8)
            .ok_or(InvalidHex)
    };
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Ok(out)
}

/// A text that is not hex digits of the right length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidHex;

impl fmt::Display for InvalidHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not hex digits of the right length")
    }
}

impl std::error::Error for InvalidHex {}
