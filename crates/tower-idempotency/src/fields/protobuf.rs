//! As much of the protobuf wire format as it takes to find one field.

use std::fmt::Write as _;

use tower_claim::http::InvalidKey;

/// How deep a path may lead is bounded by the path; how many fields are looked at, by the body.
pub(super) fn field(body: &[u8], grpc: bool, path: &[u32]) -> Result<Option<String>, InvalidKey> {
    let message = if grpc { unframed(body)? } else { body };
    Ok(find(message, path)?.map(Value::into_text))
}

/// The message behind gRPC's prefix: a flag that tells compression, and four bytes of length.
fn unframed(body: &[u8]) -> Result<&[u8], InvalidKey> {
    match body {
        [] => Ok(&[]),
        [0, a, b, c, d, message @ ..] => {
            let length = u32::from_be_bytes([*a, *b, *c, *d]);
            let whole = usize::try_from(length).is_ok_and(|length| length == message.len());
            whole.then_some(message).ok_or(InvalidKey::Unreadable)
        }
        _ => Err(InvalidKey::Unreadable),
    }
}

#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Begins what stands for bytes that are no text, and a text that begins with it itself: no two of them meet.
const TAG: char = '\0';

impl Value<'_> {
    /// A number is its decimal digits, as in JSON; bytes that are no text are written in hex, behind a tag.
    fn into_text(self) -> String {
        let bytes = match self {
            Value::Number(number) => return number.to_string(),
            Value::Bytes(bytes) => bytes,
        };
        match std::str::from_utf8(bytes) {
            Ok(text) if text.starts_with(TAG) => format!("{TAG}t{text}"),
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().fold(format!("{TAG}x"), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            }),
        }
    }
}

/// The parts of a message are one message. But a value that is there twice is a list, or one of which readers may take
/// either: no name of an intent.
fn find<'a>(message: &'a [u8], path: &[u32]) -> Result<Option<Value<'a>>, InvalidKey> {
    let Some((&wanted, deeper)) = path.split_first() else {
        return Ok(None);
    };
    let mut input = Input(message);
    let mut found = None;
    while !input.0.is_empty() {
        let (number, value) = input.field().ok_or(InvalidKey::Unreadable)?;
        if number != u64::from(wanted) {
            continue;
        }
        let value = match value {
            value if deeper.is_empty() => Some(value),
            Value::Bytes(inner) => find(inner, deeper)?,
            Value::Number(_) => return Err(InvalidKey::Unreadable),
        };
        if found.is_some() && value.is_some() {
            return Err(InvalidKey::Repeated);
        }
        found = found.or(value);
    }
    Ok(found)
}

/// What is left to read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// The number of the next field and its value. Groups, long out of use, are not read.
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Number(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(body: &[u8], path: &[u32]) -> Result<Option<String>, InvalidKey> {
        field(body, false, path)
    }

    /// `{1: "ada", 2: 300, 3: {1: "x", 2: 7}, 4: bytes ff 00}`
    const MESSAGE: &[u8] = b"\x0a\x03ada\x10\xac\x02\x1a\x05\x0a\x01x\x10\x07\x22\x02\xff\x00";

    #[test]
    fn text_numbers_bytes_and_nested_fields_are_found() {
        for (path, text) in [
            (&[1][..], "ada"),
            (&[2], "300"),
            (&[3, 1], "x"),
            (&[3, 2], "7"),
            (&[4], "\0xff00"),
        ] {
            assert_eq!(
                read(MESSAGE, path).unwrap().as_deref(),
                Some(text),
                "{path:?}"
            );
        }
        assert_eq!(read(MESSAGE, &[5]), Ok(None));
        assert_eq!(read(MESSAGE, &[3, 9]), Ok(None));
        assert_eq!(read(b"", &[1]), Ok(None));
    }

    #[test]
    fn the_parts_of_a_message_are_one_and_what_is_there_twice_is_malformed() {
        let twice = [MESSAGE, b"\x0a\x03ada\x1a\x02\x10\x08"].concat();
        assert_eq!(read(&twice, &[1]), Err(InvalidKey::Repeated));
        assert_eq!(read(&twice, &[3, 2]), Err(InvalidKey::Repeated));
        assert_eq!(read(&twice, &[3, 1]).unwrap().as_deref(), Some("x"));
        assert_eq!(read(&twice, &[2]).unwrap().as_deref(), Some("300"));
    }

    #[test]
    fn bytes_and_texts_never_meet() {
        let values: [&[u8]; 6] = [
            b"\xff\x00",
            b"ff00",
            b"\0xff00",
            b"\0tff00",
            b"\0t\0xff00",
            b"\xff\x01",
        ];
        let read = |value: &[u8]| {
            let length = u8::try_from(value.len()).unwrap();
            let message = [&[0x0a, length], value].concat();
            read(&message, &[1]).unwrap().unwrap()
        };
        for (i, a) in values.iter().enumerate() {
            for b in &values[i + 1..] {
                assert_ne!(read(a), read(b), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn what_is_no_message_is_malformed() {
        for body in [
            &MESSAGE[..4],
            b"\x0b\x0c",
            b"\x0a\xff\xff\xff\xff\x0f",
            &[0xFF; 12],
        ] {
            assert_eq!(read(body, &[9]), Err(InvalidKey::Unreadable), "{body:?}");
        }
        assert_eq!(read(MESSAGE, &[2, 1]), Err(InvalidKey::Unreadable));
    }

    #[test]
    fn the_prefix_of_grpc_is_skipped_and_must_fit() {
        let length = u8::try_from(MESSAGE.len()).unwrap();
        let framed = [&[0, 0, 0, 0, length], MESSAGE].concat();
        assert_eq!(field(&framed, true, &[1]).unwrap().as_deref(), Some("ada"));
        let compressed = [&[1, 0, 0, 0, length], MESSAGE].concat();
        for body in [&compressed[..], &framed[..9], &framed[..3]] {
            assert_eq!(field(body, true, &[1]), Err(InvalidKey::Unreadable));
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..80)) {
            for path in [&[1][..], &[1, 1], &[2, 3, 4]] {
                let _ = field(&body, false, path);
                let _ = field(&body, true, path);
            }
        }
    }
}
