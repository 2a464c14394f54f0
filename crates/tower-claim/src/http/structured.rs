//! As much of structured fields (RFC 9651) as a business key needs: one string item with parameters.

/// Parses a whole field value as an item that is a string, with optional parameters, which are checked
/// and dropped. `None` for anything else: another type, a list, something behind the item.
pub(super) fn string_item(value: &[u8]) -> Option<String> {
    let mut input = Input(value);
    input.skip(is_space);
    let text = input.string()?;
    input.parameters()?;
    input.skip(is_space);
    input.0.is_empty().then_some(text)
}

const fn is_space(b: u8) -> bool {
    b == b' '
}

const fn is_base64(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=')
}

const fn is_key_byte(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.' | b'*')
}

const fn is_token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(
            b,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
                | b':'
                | b'/'
        )
}

/// What is left to read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn eat(&mut self, expected: u8) -> Option<()> {
        (self.next()? == expected).then_some(())
    }

    /// The longest run of bytes of this kind, perhaps empty.
    fn skip(&mut self, kind: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&b| !kind(b));
        let (run, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        run
    }

    fn string(&mut self) -> Option<String> {
        self.eat(b'"')?;
        let mut text = String::new();
        loop {
            match self.next()? {
                b'"' => return Some(text),
                b'\\' => match self.next()? {
                    escaped @ (b'"' | b'\\') => text.push(char::from(escaped)),
                    _ => return None,
                },
                plain @ 0x20..=0x7E => text.push(char::from(plain)),
                _ => return None,
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.0.first() == Some(&b';') {
            self.next();
            self.skip(is_space);
            let first = self.next()?;
            if !(first.is_ascii_lowercase() || first == b'*') {
                return None;
            }
            self.skip(is_key_byte);
            if self.0.first() == Some(&b'=') {
                self.next();
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<()> {
        match self.0.first()? {
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number(),
            b'?' => {
                self.next();
                matches!(self.next()?, b'0' | b'1').then_some(())
            }
            b':' => {
                self.next();
                self.skip(is_base64);
                self.eat(b':')
            }
            b'@' => {
                self.next();
                let date = self.0;
                self.number()?;
                let date = &date[..date.len() - self.0.len()];
                (!date.contains(&b'.')).then_some(())
            }
            b'%' => self.display_string(),
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.skip(is_token_byte);
                Some(())
            }
            _ => None,
        }
    }

    /// An integer of up to 15 digits, or a decimal of up to 12 and 1 to 3.
    fn number(&mut self) -> Option<()> {
        if self.0.first() == Some(&b'-') {
            self.next();
        }
        let whole = self.skip(|b| b.is_ascii_digit()).len();
        if self.0.first() == Some(&b'.') {
            self.next();
            let fraction = self.skip(|b| b.is_ascii_digit()).len();
            ((1..=12).contains(&whole) && (1..=3).contains(&fraction)).then_some(())
        } else {
            (1..=15).contains(&whole).then_some(())
        }
    }

    /// `%"…"` with lower-case percent escapes that spell UTF-8.
    fn display_string(&mut self) -> Option<()> {
        self.eat(b'%')?;
        self.eat(b'"')?;
        let mut bytes = Vec::new();
        let digit = |b: u8| match b {
            b'0'..=b'9' => Some(b - b'0'),
            b'a'..=b'f' => Some(b - b'a' + 10),
            _ => None,
        };
        loop {
            match self.next()? {
                b'"' => return std::str::from_utf8(&bytes).ok().map(drop),
                b'%' => bytes.push(digit(self.next()?)? << 4 | digit(self.next()?)?),
                plain @ 0x20..=0x7E => bytes.push(plain),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::string_item;

    #[test]
    fn a_string_item_is_read_with_its_escapes() {
        for (value, text) in [
            (r#""abc""#, "abc"),
            (r#"  "abc"  "#, "abc"),
            (r#""""#, ""),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (r#""a,b""#, "a,b"),
        ] {
            assert_eq!(
                string_item(value.as_bytes()).as_deref(),
                Some(text),
                "{value}"
            );
        }
    }

    #[test]
    fn parameters_of_every_type_are_checked_and_dropped() {
        for parameters in [
            ";x",
            ";x=1",
            "; x=-1.5;y=?0",
            ";*a.b=tok/en",
            ";x=:YQ==:",
            ";x=@-17",
            r#";x="a;b""#,
            r#";x=%"f%c3%bc""#,
            ";x=1;x=2",
        ] {
            let value = format!("\"abc\"{parameters}");
            assert_eq!(
                string_item(value.as_bytes()).as_deref(),
                Some("abc"),
                "{value}"
            );
        }
        for parameters in [
            ";",
            ";X=1",
            ";x=",
            ";x=1.",
            ";x=1.2345",
            ";x=1234567890123456",
            ";x=?2",
            ";x=:a",
            ";x=@1.5",
            r#";x=%"f%C3%BC""#,
            r#";x=%"%ff""#,
            ";x=-",
            " ;x=1",
            ";x=1 y",
            ";x=(1)",
        ] {
            let value = format!("\"abc\"{parameters}");
            assert_eq!(string_item(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn anything_but_one_string_is_refused() {
        for value in [
            "",
            " ",
            "abc",
            "1",
            "?1",
            ":YQ==:",
            "(\"a\")",
            "\"a\", \"b\"",
            "\"a\" \"b\"",
            "\"a",
            "\"a\\",
            "\"a\\n\"",
            "\"a\u{7f}\"",
            "\"ü\"",
            "\"a\tb\"",
            "\t\"a\"",
            "%\"a\"",
        ] {
            assert_eq!(string_item(value.as_bytes()), None, "{value:?}");
        }
    }

    fn escaped(text: &str) -> String {
        format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(value in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = string_item(&value);
        }

        #[test]
        fn bytes_that_look_like_an_item_never_panic(value in r#""[ -~]{0,12}"?(;[ -~]{0,12}){0,3}"#) {
            let _ = string_item(value.as_bytes());
        }

        #[test]
        fn what_is_written_is_read(text in "[ -~]{0,40}") {
            prop_assert_eq!(string_item(escaped(&text).as_bytes()), Some(text));
        }
    }
}
