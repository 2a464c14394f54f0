//! Forms, as URLs and HTML write them (`application/x-www-form-urlencoded`).

use tower_claim::http::InvalidKey;

/// The one field of this name.
pub(super) fn field(form: &[u8], name: &str) -> Result<Option<String>, InvalidKey> {
    let mut found = None;
    for pair in form.split(|&b| b == b'&').filter(|pair| !pair.is_empty()) {
        let equals = pair.iter().position(|&b| b == b'=');
        let (key, value) = match equals {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &[][..]),
        };
        if decode(key, true).is_ok_and(|key| key == name) {
            if found.is_some() {
                return Err(InvalidKey::Repeated);
            }
            found = Some(decode(value, true)?);
        }
    }
    Ok(found)
}

/// Undoes percent encoding; `%` that begins no escape stands for itself. In forms `+` is a space.
pub(super) fn decode(text: &[u8], form: bool) -> Result<String, InvalidKey> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind) {
            (b'%', [high, low, behind @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high << 4 | low);
                    rest = behind;
                }
                _ => bytes.push(b'%'),
            },
            (b'+', _) if form => bytes.push(b' '),
            _ => bytes.push(first),
        }
    }
    String::from_utf8(bytes).map_err(|_| InvalidKey::Character)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        for (text, plain) in [
            ("a+b%20c", "a b c"),
            ("%c3%BC", "ü"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
        ] {
            assert_eq!(decode(text.as_bytes(), true).as_deref(), Ok(plain));
        }
        assert_eq!(decode(b"a+b", false).as_deref(), Ok("a+b"));
        assert_eq!(decode(b"%ff", true), Err(InvalidKey::Character));
    }

    #[test]
    fn names_are_compared_decoded() {
        assert_eq!(field(b"%61mount=1", "amount"), Ok(Some("1".to_owned())));
        assert_eq!(field(b"amount", "amount"), Ok(Some(String::new())));
        assert_eq!(field(b"", "amount"), Ok(None));
    }
}
