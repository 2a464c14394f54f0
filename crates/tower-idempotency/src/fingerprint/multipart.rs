//! Multipart bodies: their parts, whatever stands between them.

/// The content type of a multipart body, without its boundary, and the boundary.
pub(super) struct Multipart {
    pub(super) content_type: Vec<u8>,
    delimiter: Vec<u8>,
}

impl Multipart {
    /// `None` when it is another type, or its boundary is none (RFC 2046, 5.1.1).
    pub(super) fn of(content_type: &[u8]) -> Option<Self> {
        let mut parameters = split_parameters(content_type);
        let essence = parameters.next()?.trim_ascii();
        if essence.len() < 10 || !essence[..10].eq_ignore_ascii_case(b"multipart/") {
            return None;
        }
        let mut kept = essence.to_ascii_lowercase();
        let mut boundary = None;
        for parameter in parameters {
            let parameter = parameter.trim_ascii();
            let value = strip_name(parameter, b"boundary=");
            match value {
                Some(_) if boundary.is_some() => return None,
                Some(value) => boundary = Some(value),
                None => {
                    kept.push(b';');
                    kept.extend_from_slice(parameter);
                }
            }
        }
        let boundary = boundary?;
        let boundary = match boundary {
            [b'"', inner @ .., b'"'] => inner,
            plain => plain,
        };
        let legal = (1..=70).contains(&boundary.len())
            && !boundary.contains(&b'"')
            && !boundary.contains(&b'\\')
            && boundary.iter().all(|b| (0x20..=0x7E).contains(b));
        legal.then(|| Self {
            content_type: kept,
            delimiter: [b"\r\n--", boundary].concat(),
        })
    }

    /// The parts in order, head and content, as they were sent. `None` when the body is not of this form to its
    /// last byte: then its bytes are what counts.
    pub(super) fn parts<'a>(&self, body: &'a [u8]) -> Option<Vec<&'a [u8]>> {
        let mut rest = body.strip_prefix(&self.delimiter[2..])?;
        let mut parts = Vec::new();
        loop {
            if let Some(epilogue) = rest.strip_prefix(b"--") {
                return matches!(epilogue, b"" | b"\r\n").then_some(parts);
            }
            // White space may stand behind a delimiter; what is sent has none.
            rest = rest.strip_prefix(b"\r\n")?;
            let end = find(rest, &self.delimiter)?;
            parts.push(&rest[..end]);
            rest = &rest[end + self.delimiter.len()..];
        }
    }
}

/// At semicolons, but for those in quotes.
fn split_parameters(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    value.split(move |&b| {
        quoted ^= b == b'"';
        b == b';' && !quoted
    })
}

fn strip_name<'a>(parameter: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (head, value) = parameter.split_at_checked(name.len())?;
    head.eq_ignore_ascii_case(name).then_some(value)
}

/// Skips from one carriage return to the next.
fn find(text: &[u8], delimiter: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|&b| b == b'\r') {
        if text[from + at..].starts_with(delimiter) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(content_type: &str, body: &str) -> Option<Vec<String>> {
        let parts = Multipart::of(content_type.as_bytes())?.parts(body.as_bytes())?;
        let text = |part: &&[u8]| String::from_utf8(part.to_vec()).unwrap();
        Some(parts.iter().map(text).collect())
    }

    const BODY: &str = "--X\r\nA: 1\r\n\r\nhello\r\n--Y\r\n--X\r\nB: 2\r\n\r\n\r\n--X--\r\n";

    #[test]
    fn parts_are_found_between_their_boundaries() {
        let expected = ["A: 1\r\n\r\nhello\r\n--Y", "B: 2\r\n\r\n"].map(str::to_owned);
        for content_type in [
            "multipart/form-data; boundary=X",
            "Multipart/Form-Data;boundary=\"X\"",
            "multipart/form-data; charset=utf-8; BOUNDARY=X",
        ] {
            assert_eq!(
                parts(content_type, BODY).as_deref(),
                Some(&expected[..]),
                "{content_type}"
            );
        }
        assert_eq!(parts("multipart/mixed; boundary=X", "--X--"), Some(vec![]));
    }

    #[test]
    fn the_boundary_is_no_part_of_the_content_type() {
        let kept = |value: &str| Multipart::of(value.as_bytes()).map(|m| m.content_type);
        assert_eq!(
            kept("multipart/form-data; boundary=X; charset=utf-8"),
            kept("multipart/form-data; charset=utf-8;boundary=\"YY\"")
        );
        assert_ne!(
            kept("multipart/form-data; boundary=X"),
            kept("multipart/mixed; boundary=X")
        );
    }

    #[test]
    fn what_is_not_of_this_form_is_refused() {
        for content_type in [
            "",
            "text/plain; boundary=X",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=X; boundary=Y",
            "multipart/form-data; boundary=\"a\\\"b\"",
        ] {
            assert!(
                Multipart::of(content_type.as_bytes()).is_none(),
                "{content_type}"
            );
        }
        for body in [
            "",
            "preamble\r\n--X--",
            "--X\r\nA: 1\r\n\r\nhello",
            "--X\r\nhello\r\n--X",
            "--X--\r\nepilogue",
            "--XY\r\nhello\r\n--XY--",
        ] {
            assert_eq!(
                parts("multipart/form-data; boundary=X", body),
                None,
                "{body}"
            );
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(
            content_type in "(multipart/[a-z;=\" ]{0,20})?(boundary=[X\"]{0,3})?",
            body in "(--X|\r\n|-|a){0,24}",
        ) {
            let _ = parts(&content_type, &body);
        }
    }
}
