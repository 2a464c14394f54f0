//! The client's digest of its body: `Content-Digest` (RFC 9530).

use http::{HeaderMap, HeaderName};

/// `Content-Digest`.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// A digest that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The SHA-256 that the client sent along, `None` where it sent none. Other algorithms are not looked at.
pub(crate) fn sha256(headers: &HeaderMap) -> Result<Option<[u8; 32]>, Malformed> {
    let mut found = None;
    for line in headers.get_all(CONTENT_DIGEST) {
        // No digest has a comma in it, and parameters have no meaning here.
        for member in line.as_bytes().split(|&b| b == b',') {
            if let Some(value) = member.trim_ascii().strip_prefix(b"sha-256=") {
                // Of a key that comes twice the last one counts (RFC 9651, 4.2.2).
                found = Some(byte_sequence(value).ok_or(Malformed)?);
            }
        }
    }
    Ok(found)
}

/// `:base64:`, with parameters or without.
fn byte_sequence(value: &[u8]) -> Option<[u8; 32]> {
    let value = value.strip_prefix(b":")?;
    let end = value.iter().position(|&b| b == b':')?;
    let (text, behind) = (&value[..end], &value[end + 1..]);
    if !matches!(behind.first(), None | Some(b';')) {
        return None;
    }
    let mut digest = [0; 32];
    // 32 bytes are 43 characters and one `=`, which may be left out.
    let text = text.strip_suffix(b"=").unwrap_or(text);
    if text.len() != 43 {
        return None;
    }
    let (mut bits, mut held, mut at) = (0_u32, 0, 0);
    for &character in text {
        bits = bits << 6 | u32::from(sextet(character)?);
        held += 6;
        if held >= 8 {
            held -= 8;
            *digest.get_mut(at)? = u8::try_from(bits >> held & 0xFF).ok()?;
            at += 1;
        }
    }
    Some(digest)
}

fn sextet(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    use super::*;

    fn read(lines: &[&str]) -> Result<Option<[u8; 32]>, Malformed> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CONTENT_DIGEST, HeaderValue::from_str(line).unwrap());
        }
        sha256(&headers)
    }

    /// The example of RFC 9530, appendix A.
    const HELLO: &str = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";

    #[test]
    fn the_example_of_the_rfc_is_read() {
        let digest: [u8; 32] = Sha256::digest(b"{\"hello\": \"world\"}\n").into();
        for lines in [
            &[HELLO][..],
            &["sha-512=:AAAA:, sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg:;a=1"],
            &["sha-512=:AAAA:", HELLO],
        ] {
            assert_eq!(read(lines), Ok(Some(digest)), "{lines:?}");
        }
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["sha-512=:AAAA:, md5=:AAAA:"]), Ok(None));
    }

    #[test]
    fn a_digest_that_cannot_be_one_is_malformed() {
        for line in [
            "sha-256=",
            "sha-256=::",
            "sha-256=:RK/0:",
            "sha-256=RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=",
            "sha-256=:RK-0qy18MlBSVnWgjwz6lZEWjP_lF5HF9bvEF8FabDg=:",
            "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:x",
        ] {
            assert_eq!(read(&[line]), Err(Malformed), "{line}");
        }
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(line in "(sha-256=:)?[A-Za-z0-9+/=:,;]{0,60}") {
            let _ = read(&[&line]);
        }
    }
}
