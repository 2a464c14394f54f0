//! As much of JSON as an answer needs.

use std::fmt::Write as _;

/// An object that is being written.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    pub(crate) fn text(mut self, name: &str, text: &str) -> Self {
        self.name(name);
        push_string(&mut self.0, text.chars());
        self
    }

    /// A number, `true`, `false`, `null`, or what was written before.
    pub(crate) fn raw(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.name(name);
        let _ = write!(self.0, "{value}");
        self
    }

    /// Pairs of strings, in order. Bytes that are no ASCII are told as the characters of Latin-1.
    pub(crate) fn pairs<'a>(
        mut self,
        name: &str,
        pairs: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Self {
        self.name(name);
        self.0.push('[');
        for (i, (left, right)) in pairs.enumerate() {
            self.0.push_str(if i == 0 { "[" } else { ",[" });
            push_string(&mut self.0, left.chars());
            self.0.push(',');
            push_string(&mut self.0, right.iter().copied().map(char::from));
            self.0.push(']');
        }
        self.0.push(']');
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        push_string(&mut self.0, name.chars());
        self.0.push(':');
    }
}

/// A string, in its quotes.
pub(crate) fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_string(&mut out, text.chars());
    out
}

/// A list of what was written before.
pub(crate) fn list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let mut out = "[".to_owned();
    for item in items {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(item.as_ref());
    }
    out.push(']');
    out
}

fn push_string(out: &mut String, text: impl Iterator<Item = char>) {
    out.push('"');
    for c in text {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // DEL and the C1 controls are legal, and no friend of terminals.
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// RFC 4648, 4, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |i: usize| three.get(i).copied().map_or(0, u32::from);
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            if place > three.len() {
                out.push('=');
            } else {
                let six = (bits >> (18 - 6 * place)) as usize & 63;
                out.push(char::from(ALPHABET[six]));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xFB, 0xFF, 0xFE]), "+//+");
    }

    #[test]
    fn an_object_is_json() {
        let pairs = [("a", &b"caf\xE9"[..]), ("b", &b"\"\\\x07"[..])];
        let json = Object::new()
            .text("t", "\u{7f}\n\u{e9}")
            .raw("n", 7)
            .pairs("p", pairs.into_iter())
            .pairs("none", std::iter::empty())
            .end();
        let expected = concat!(
            r#"{"t":"\u007f\u000a"#,
            "\u{e9}",
            r#"","n":7,"p":[["a","caf"#,
            "\u{e9}",
            r#""],["b","\"\\\u0007"]],"none":[]}"#
        );
        assert_eq!(json, expected);
    }
}
