//! Bytes as one line of a report.

use std::fmt::Write as _;

/// Printable ASCII as it is, all else escaped, no more than `most` bytes of it.
pub(crate) fn shown(bytes: &[u8], most: usize) -> String {
    let mut text = String::new();
    for byte in bytes.iter().take(most) {
        match byte {
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.extend(byte.escape_ascii().map(char::from)),
        }
    }
    if bytes.len() > most {
        let _ = write!(text, "… ({} bytes)", bytes.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_one_line_whatever_was_sent() {
        assert_eq!(shown(b"{\"a\": 1}\r\n\xE9", 99), "{\"a\": 1}\\r\\n\\xe9");
        assert_eq!(shown(b"abc", 2), "ab\u{2026} (3 bytes)");
    }
}
