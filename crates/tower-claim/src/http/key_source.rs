//! Where the business key of a request comes from.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;

use super::business_key::{BusinessKey, IntoBusinessKey, InvalidKey};
use super::structured;

/// How a key header is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum KeySyntax {
    /// `"abc"` and `abc` are one key. The default: nearly every deployed client sends the bare form,
    /// while the IETF draft on the `Idempotency-Key` field asks for the quoted one.
    ///
    /// A bare key is visible ASCII without `"`, `,` and `;`: those would make it something else in the
    /// quoted form.
    #[default]
    Lenient,
    /// Only a structured field string (RFC 9651): `"abc"`, perhaps with parameters.
    Strict,
}

impl KeySyntax {
    /// Reads the key in one field value. Parameters (`"abc";x=1`) are checked and dropped.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] unless the value names one key of 1 to 255 bytes of printable ASCII.
    pub fn parse(self, value: &[u8]) -> Result<BusinessKey, InvalidKey> {
        let value = value.trim_ascii();
        if value.is_empty() {
            return Err(InvalidKey::Empty);
        }
        if value.iter().any(|b| !(0x20..=0x7E).contains(b)) {
            return Err(InvalidKey::Character);
        }
        if let Some(text) = structured::string_item(value) {
            return BusinessKey::from_client(text);
        }
        if self == Self::Strict || value.contains(&b'"') || value.contains(&b';') {
            return Err(InvalidKey::Syntax);
        }
        if value.contains(&b',') {
            return Err(InvalidKey::Repeated);
        }
        if value.contains(&b' ') {
            return Err(InvalidKey::Syntax);
        }
        let text = std::str::from_utf8(value).map_err(|_| InvalidKey::Character)?;
        BusinessKey::from_client(text.to_owned())
    }
}

type KeyFn = dyn Fn(&Parts) -> Result<Option<BusinessKey>, InvalidKey> + Send + Sync;

/// Where the business key of a request comes from: a header that the client sends, or a function of the
/// request's head, for keys that the server derives.
///
/// ```
/// use http::HeaderName;
/// use tower_claim::http::{KeyFields, KeySource, KeySyntax, path_segment};
///
/// let sent = KeySource::header(HeaderName::from_static("idempotency-key"), KeySyntax::Lenient);
/// // One announcement per tenant and classroom, whoever asks and however often.
/// let classroom = path_segment("/classrooms/{room}/announcement")?;
/// let derived = KeySource::function(move |req| {
///     let tenant = req.headers.get("x-tenant")?.to_str().ok()?;
///     Some(KeyFields::new().field("tenant", tenant).field("classroom", classroom(req)?))
/// });
///
/// let (parts, ()) = http::Request::post("/classrooms/7/announcement")
///     .header("idempotency-key", "\"8e03978e\"")
///     .header("x-tenant", "acme")
///     .body(())?
///     .into_parts();
/// assert_eq!(sent.read(&parts)?.unwrap().as_client_text(), Some("8e03978e"));
/// assert!(derived.read(&parts)?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct KeySource(Inner);

#[derive(Clone)]
enum Inner {
    Header(HeaderName, KeySyntax),
    Function(Arc<KeyFn>),
}

impl KeySource {
    /// The one value of this header. Two lines of it are refused, and so is a list.
    pub fn header(name: HeaderName, syntax: KeySyntax) -> Self {
        Self(Inner::Header(name, syntax))
    }

    /// What a function answers: text, a number, [`KeyFields`](super::KeyFields), or `None` for a request
    /// without a key. Make whose request it is (the tenant) part of a derived key, and read names from the path
    /// by [`path_segment`](super::path_segment), not from the raw text: `7` and `%37` are one name to a handler.
    pub fn function<F, K>(f: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoBusinessKey,
    {
        Self(Inner::Function(Arc::new(move |parts| {
            f(parts).into_business_key()
        })))
    }

    /// The key of this request, `None` without one.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] when there is one and it is malformed: a request is never treated as one without a
    /// key because its key could not be read.
    pub fn read(&self, parts: &Parts) -> Result<Option<BusinessKey>, InvalidKey> {
        match &self.0 {
            Inner::Header(name, syntax) => {
                let mut values = parts.headers.get_all(name).iter();
                let Some(value) = values.next() else {
                    return Ok(None);
                };
                if values.next().is_some() {
                    return Err(InvalidKey::Repeated);
                }
                syntax.parse(value.as_bytes()).map(Some)
            }
            Inner::Function(f) => f(parts),
        }
    }

    /// The header, when the key comes from one.
    pub fn header_name(&self) -> Option<&HeaderName> {
        match &self.0 {
            Inner::Header(name, _) => Some(name),
            Inner::Function(_) => None,
        }
    }

    /// How that header is read.
    pub fn syntax(&self) -> Option<KeySyntax> {
        match &self.0 {
            Inner::Header(_, syntax) => Some(*syntax),
            Inner::Function(_) => None,
        }
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Header(name, syntax) => f
                .debug_tuple("KeySource::Header")
                .field(name)
                .field(syntax)
                .finish(),
            Inner::Function(_) => f.write_str("KeySource::Function(…)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::http::KeyFields;

    fn lenient(value: &str) -> Result<String, InvalidKey> {
        text(KeySyntax::Lenient.parse(value.as_bytes()))
    }

    fn strict(value: &str) -> Result<String, InvalidKey> {
        text(KeySyntax::Strict.parse(value.as_bytes()))
    }

    fn text(key: Result<BusinessKey, InvalidKey>) -> Result<String, InvalidKey> {
        key.map(|k| k.as_client_text().unwrap().to_owned())
    }

    #[test]
    fn quoted_bare_and_parametrised_forms_are_one_key_in_lenient_mode() {
        for value in ["abc", "\"abc\"", "\"abc\";x=1", " abc ", "\"abc\" "] {
            assert_eq!(lenient(value).as_deref(), Ok("abc"), "{value:?}");
        }
        for value in [
            "order:1/2",
            "a=b",
            "8e03978e-40d5-43dd-bc93-6894a57f9324",
            "?1",
            ":YQ==:",
        ] {
            assert_eq!(lenient(value).as_deref(), Ok(value));
        }
    }

    #[test]
    fn a_bare_key_is_refused_in_strict_mode() {
        assert_eq!(strict("\"abc\";x=1").as_deref(), Ok("abc"));
        assert_eq!(strict("\"order:1/2\"").as_deref(), Ok("order:1/2"));
        for value in ["abc", "1", "?1", ":YQ==:", "\"a\",\"b\"", "\"abc\";X=1"] {
            assert_eq!(strict(value), Err(InvalidKey::Syntax), "{value:?}");
        }
    }

    #[test]
    fn odd_keys_are_refused_in_both_modes() {
        let long = "x".repeat(256);
        for (value, why) in [
            ("", InvalidKey::Empty),
            ("   ", InvalidKey::Empty),
            ("\"\"", InvalidKey::Empty),
            ("\"  \"", InvalidKey::Empty),
            (&long, InvalidKey::TooLong),
            ("caf\u{e9}", InvalidKey::Character),
            ("a\tb", InvalidKey::Character),
            ("a\r\nb", InvalidKey::Character),
            ("a\u{7f}", InvalidKey::Character),
            ("a,b", InvalidKey::Repeated),
            ("\"a\",\"b\"", InvalidKey::Syntax),
            ("abc;x=1", InvalidKey::Syntax),
            ("a b", InvalidKey::Syntax),
            ("\"abc", InvalidKey::Syntax),
            ("abc\"", InvalidKey::Syntax),
        ] {
            assert_eq!(lenient(value), Err(why), "{value:?}");
            assert!(strict(value).is_err(), "{value:?}");
        }
        assert_eq!(
            KeySyntax::Lenient.parse(b"caf\xE9"),
            Err(InvalidKey::Character)
        );
        assert!(lenient(&"x".repeat(255)).is_ok());
    }

    #[test]
    fn a_header_is_one_line_or_none() {
        let source = KeySource::header(HeaderName::from_static("k"), KeySyntax::Lenient);
        let read = |values: &[&'static str]| {
            let (mut parts, ()) = http::Request::new(()).into_parts();
            for value in values {
                parts.headers.append("k", HeaderValue::from_static(value));
            }
            source.read(&parts)
        };
        assert_eq!(read(&[]), Ok(None));
        assert!(matches!(read(&["a"]), Ok(Some(_))));
        assert_eq!(read(&["a", "a"]), Err(InvalidKey::Repeated));
        assert_eq!(read(&[""]), Err(InvalidKey::Empty));
    }

    #[test]
    fn a_function_may_answer_text_numbers_fields_or_nothing() {
        let (parts, ()) = http::Request::new(()).into_parts();
        let read = |source: KeySource| source.read(&parts);
        assert_eq!(
            read(KeySource::function(|_| 7u64)),
            read(KeySource::function(|req| Some(format!(
                "{}",
                req.uri.path().len() + 6
            ))))
        );
        assert!(matches!(read(KeySource::function(|_| "x")), Ok(Some(_))));
        assert_eq!(read(KeySource::function(|_| None::<String>)), Ok(None));
        assert_eq!(
            read(KeySource::function(|_| KeyFields::new())),
            Err(InvalidKey::Empty)
        );
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic_and_never_make_an_odd_key(
            value in prop::collection::vec(any::<u8>(), 0..300)
        ) {
            for syntax in [KeySyntax::Lenient, KeySyntax::Strict] {
                if let Ok(key) = syntax.parse(&value) {
                    let text = key.as_client_text().unwrap();
                    prop_assert!((1..=255).contains(&text.len()));
                    prop_assert!(text.bytes().all(|b| (0x20..=0x7E).contains(&b)));
                }
            }
        }

        #[test]
        fn what_strict_mode_reads_lenient_mode_reads_too(value in r#""?[ -~]{0,20}"?(;[a-z]=[0-9])?"#) {
            if let Ok(key) = KeySyntax::Strict.parse(value.as_bytes()) {
                prop_assert_eq!(KeySyntax::Lenient.parse(value.as_bytes()), Ok(key));
            }
        }
    }
}
