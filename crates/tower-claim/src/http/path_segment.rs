//! A named segment of a path, for keys.

use std::sync::Arc;

use http::request::Parts;

use super::original_uri;
use crate::ConfigError;

/// The name of a segment that may be anything and is not read.
const ANY: &str = "{_}";

/// Reads one segment of the path, decoded: a key function, or a part of one. `"/accounts/{id}/transfers"` reads the
/// second segment of such a path; `{_}` is a segment that may be anything; a path of another form is `None`.
///
/// Keys made from the raw `uri.path()` are not the names that a handler gets: `/accounts/77` and `/accounts/%37%37` are
/// one account to axum's `Path`, but two texts, so whoever writes one digit as an escape passes the claim. This decodes as
/// `Path` does: `%` that begins no escape stands for itself. A segment whose escapes are no UTF-8 (`Path` refuses it)
/// is taken as it was sent, so that a handler which reads no `Path` is guarded there, too.
///
/// The path is the [original](original_uri) one: inside a nested router the template begins with the prefix.
///
/// ```
/// use tower_claim::http::path_segment;
///
/// let account = path_segment("/accounts/{id}/transfers")?;
/// for path in ["/accounts/77/transfers", "/accounts/%37%37/transfers"] {
///     let (parts, ()) = http::Request::post(path).body(())?.into_parts();
///     assert_eq!(account(&parts).as_deref(), Some("77"));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Where the template does not begin with a slash, names no segment or several, or writes a segment otherwise than `{id}`
/// (`:id`, `{*rest}`).
pub fn path_segment(
    template: &str,
) -> Result<impl Fn(&Parts) -> Option<String> + Clone + Send + Sync + use<>, ConfigError> {
    let expected: Arc<[Expected]> = template.split('/').map(Expected::of).collect();
    let odd = |segment: &Expected| match segment {
        Expected::Fixed(text) => text.contains(['{', '}']) || text.starts_with([':', '*']),
        Expected::Wanted(name) => name.is_empty() || name.contains(['{', '}', '*']),
        Expected::Any => false,
    };
    let wanted = |segment: &&Expected| matches!(segment, Expected::Wanted(_));
    let readable = template.starts_with('/') && !expected.iter().any(odd);
    if !readable || expected.iter().filter(wanted).count() != 1 {
        let problem = format!(
            "`{template}`: write a path with one named segment, like `/accounts/{{id}}/transfers`; `{ANY}` is a \
             segment that is not read"
        );
        return Err(ConfigError::new("path_segment", problem));
    }
    Ok(move |parts: &Parts| {
        read(
            &expected,
            original_uri(&parts.extensions, &parts.uri).path(),
        )
    })
}

#[derive(Debug)]
enum Expected {
    Fixed(String),
    Wanted(String),
    Any,
}

impl Expected {
    fn of(segment: &str) -> Self {
        if segment == ANY {
            return Self::Any;
        }
        match segment.strip_prefix('{').and_then(|s| s.strip_suffix('}')) {
            Some(name) => Self::Wanted(name.to_owned()),
            None => Self::Fixed(segment.to_owned()),
        }
    }
}

fn read(expected: &[Expected], path: &str) -> Option<String> {
    let mut segments = path.split('/');
    let mut found = None;
    for expected in expected {
        let segment = segments.next()?;
        match expected {
            // Decoded, too: some routers decode before they match.
            Expected::Fixed(fixed) if *fixed != decoded(segment) => return None,
            Expected::Wanted(_) => found = Some(decoded(segment)),
            Expected::Fixed(_) | Expected::Any => {}
        }
    }
    found.filter(|_| segments.next().is_none())
}

/// Undoes percent encoding; `%` that begins no escape stands for itself. What is no UTF-8 then stays as it was.
fn decoded(segment: &str) -> String {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        let escape = match behind {
            [high, low, ..] if first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match escape {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &behind[2..];
            }
            None => bytes.push(first),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| segment.to_owned())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use http::{Request, Uri};

    use super::*;
    use crate::http::record_original_uri;

    fn read(template: &str, path: &str) -> Option<String> {
        let (parts, ()) = Request::builder().uri(path).body(()).unwrap().into_parts();
        path_segment(template).unwrap()(&parts)
    }

    #[test]
    fn each_spelling_of_a_segment_is_one_name() {
        for (path, name) in [
            ("/rooms/77/seats", "77"),
            ("/rooms/%37%37/seats?x=1", "77"),
            ("/rooms/7%37/%73eats", "77"),
            ("/rooms/a%2Fb/seats", "a/b"),
            ("/rooms/a%2fb/seats", "a/b"),
            ("/rooms/a+b/seats", "a+b"),
            ("/rooms/100%/seats", "100%"),
            ("/rooms/%zz%4/seats", "%zz%4"),
            ("/rooms/%C3%BC/seats", "ü"),
        ] {
            let read = read("/rooms/{room}/seats", path);
            assert_eq!(read.as_deref(), Some(name), "{path}");
        }
    }

    #[test]
    fn what_is_no_text_has_a_name_all_the_same() {
        let read = read("/rooms/{room}", "/rooms/%ff");
        assert_eq!(read.as_deref(), Some("%ff"));
    }

    #[test]
    fn another_path_has_no_name() {
        for path in [
            "/rooms/7",
            "/rooms/7/seats/",
            "/rooms/7/8",
            "/other/7/seats",
        ] {
            assert_eq!(read("/rooms/{room}/seats", path), None, "{path}");
        }
        let second = read("/transfer/{_}/{to}", "/transfer/1/2");
        assert_eq!(second.as_deref(), Some("2"));
    }

    #[test]
    fn a_nested_router_changes_no_name() {
        let mut request = Request::builder().uri("/v1/rooms/7").body(()).unwrap();
        record_original_uri(&mut request);
        *request.uri_mut() = Uri::from_static("/rooms/7");
        let (parts, ()) = request.into_parts();
        let room = path_segment("/v1/rooms/{room}").unwrap();
        assert_eq!(room(&parts).as_deref(), Some("7"));
    }

    #[test]
    fn a_template_that_would_read_nothing_is_refused_with_the_mend() {
        for template in [
            "/rooms",
            "/rooms/:room",
            "rooms/{room}",
            "/{a}/{b}",
            "/{}",
            "/{*rest}",
            "/a{b}",
            "/*room",
            "/{_}",
            "/:tenant/{room}",
            "/{room}/*rest",
        ] {
            let error = path_segment(template).err().expect(template).to_string();
            assert!(
                error.contains(template) && error.contains("{id}"),
                "{error}"
            );
        }
    }
}
