//! Business keys: the name of one business intent.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use super::KeyWeakness;
use crate::key::KeyBuilder;
use crate::{Clock, Code, Refusal};

/// The longest business key, in bytes.
const MAX_LEN: usize = 255;

/// Names *one business intent*: made by the client (a header), or by the server from business fields. A
/// timestamp or a random value per attempt is not one.
///
/// Two keys of different origin are never equal: the client's `42` is not the `42` of a function.
/// `Debug` shows the origin and the length only: business keys may be personal data.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BusinessKey(Inner);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Inner {
    Client(String),
    Named(String),
    Fields(KeyFields),
}

impl BusinessKey {
    /// A key that a client sent, after its syntax was undone.
    pub(super) fn from_client(text: String) -> Result<Self, InvalidKey> {
        check_text(text).map(|text| Self(Inner::Client(text)))
    }

    /// A key that the server makes.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] unless `text` has 1 to 255 bytes of printable ASCII, not only spaces.
    pub fn named(text: impl Into<String>) -> Result<Self, InvalidKey> {
        check_text(text.into()).map(|text| Self(Inner::Named(text)))
    }

    /// A key made of named business fields. Their order does not matter; their names and borders do.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] when there is no field, when two have one name, or when a value is empty: an empty
    /// field would give unrelated requests one key.
    pub fn fields(fields: KeyFields) -> Result<Self, InvalidKey> {
        fields.check().map(|fields| Self(Inner::Fields(fields)))
    }

    /// The key as the client wrote it, without quotes and parameters. `None` when the server made it.
    pub fn as_client_text(&self) -> Option<&str> {
        match &self.0 {
            Inner::Client(text) => Some(text),
            Inner::Named(_) | Inner::Fields(_) => None,
        }
    }

    /// Why the key is not likely to name an intent, if there is a reason. Keys that the server made are not
    /// judged.
    pub fn weakness(&self, clock: &dyn Clock) -> Option<KeyWeakness> {
        KeyWeakness::of(self.as_client_text()?, clock)
    }

    /// Adds the key to a record key: its origin first, then each part behind its length.
    #[must_use]
    pub fn add_to(&self, key: KeyBuilder) -> KeyBuilder {
        match &self.0 {
            Inner::Client(text) => key.part("client").part(text),
            Inner::Named(text) => key.part("named").part(text),
            Inner::Fields(KeyFields(fields)) => fields
                .iter()
                .fold(key.part("fields"), |key, (name, value)| {
                    key.part(name.as_ref()).part(value)
                }),
        }
    }
}

impl fmt::Debug for BusinessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Client(text) => write!(f, "BusinessKey(client, {} bytes)", text.len()),
            Inner::Named(text) => write!(f, "BusinessKey(named, {} bytes)", text.len()),
            Inner::Fields(fields) => write!(f, "BusinessKey({fields:?})"),
        }
    }
}

fn check_text(text: String) -> Result<String, InvalidKey> {
    if text.bytes().all(|b| b == b' ') {
        Err(InvalidKey::Empty)
    } else if text.len() > MAX_LEN {
        Err(InvalidKey::TooLong)
    } else if !text.bytes().all(|b| (0x20..=0x7E).contains(&b)) {
        Err(InvalidKey::Character)
    } else {
        Ok(text)
    }
}

/// Named business fields that together name one intent: which tenant, which classroom, which month.
///
/// ```
/// use tower_claim::http::{BusinessKey, KeyFields};
///
/// let key = |room: &str| {
///     let fields = KeyFields::new().field("tenant", "acme").field("room", room);
///     BusinessKey::fields(fields)
/// };
/// assert_eq!(key("7"), key("7"));
/// assert_ne!(key("7"), key("8"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct KeyFields(Vec<(Cow<'static, str>, String)>);

impl KeyFields {
    /// No fields yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field. The value may be any text.
    #[must_use]
    pub fn field(mut self, name: impl Into<Cow<'static, str>>, value: impl ToString) -> Self {
        self.0.push((name.into(), value.to_string()));
        self
    }

    fn check(mut self) -> Result<Self, InvalidKey> {
        self.0.sort_unstable();
        let empty = self.0.is_empty() || self.0.iter().any(|(_, value)| value.trim().is_empty());
        if empty {
            Err(InvalidKey::Empty)
        } else if self.0.windows(2).any(|two| two[0].0 == two[1].0) {
            Err(InvalidKey::Repeated)
        } else {
            Ok(self)
        }
    }
}

impl fmt::Debug for KeyFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

/// What a key function may answer: text, a number, [`KeyFields`], a [`BusinessKey`] made by hand, or
/// `None` for "this request has no key".
pub trait IntoBusinessKey {
    /// The key, `None` without one.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] when it is malformed.
    fn into_business_key(self) -> Result<Option<BusinessKey>, InvalidKey>;
}

impl IntoBusinessKey for BusinessKey {
    fn into_business_key(self) -> Result<Option<BusinessKey>, InvalidKey> {
        Ok(Some(self))
    }
}

impl IntoBusinessKey for KeyFields {
    fn into_business_key(self) -> Result<Option<BusinessKey>, InvalidKey> {
        BusinessKey::fields(self).map(Some)
    }
}

impl IntoBusinessKey for String {
    fn into_business_key(self) -> Result<Option<BusinessKey>, InvalidKey> {
        BusinessKey::named(self).map(Some)
    }
}

impl IntoBusinessKey for &'static str {
    fn into_business_key(self) -> Result<Option<BusinessKey>, InvalidKey> {
        BusinessKey::named(self).map(Some)
    }
}

impl IntoBusinessKey for u64 {
    fn into_business_key(self) -> Result<Option<BusinessKey>, InvalidKey> {
        BusinessKey::named(self.to_string()).map(Some)
    }
}

impl<T: IntoBusinessKey> IntoBusinessKey for Option<T> {
    fn into_business_key(self) -> Result<Option<BusinessKey>, InvalidKey> {
        self.map_or(Ok(None), T::into_business_key)
    }
}

impl<T: IntoBusinessKey> IntoBusinessKey for Result<T, InvalidKey> {
    fn into_business_key(self) -> Result<Option<BusinessKey>, InvalidKey> {
        self?.into_business_key()
    }
}

/// A malformed business key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InvalidKey {
    /// No bytes, or only spaces.
    Empty,
    /// Over 255 bytes.
    TooLong,
    /// A control character, or one outside ASCII.
    Character,
    /// Two header lines, a list, or two fields of one name: which one is meant?
    Repeated,
    /// Not of the syntax the layer asks for.
    Syntax,
    /// It is to be derived from a part of the request that cannot be read.
    Unreadable,
}

impl InvalidKey {
    const fn text(self) -> &'static str {
        match self {
            Self::Empty => "a business key is not empty",
            Self::TooLong => "a business key has at most 255 bytes",
            Self::Character => "a business key is printable ASCII",
            Self::Repeated => "one business key, not several",
            Self::Syntax => "write the business key as a quoted string, like \"8e03978e\"",
            Self::Unreadable => {
                "the part of the request that makes its business key cannot be read"
            }
        }
    }
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl StdError for InvalidKey {}

impl From<InvalidKey> for Refusal {
    fn from(invalid: InvalidKey) -> Self {
        Refusal::new(Code::KeyInvalid).with_detail(invalid.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Namespace, Use};

    fn record_key(key: &BusinessKey) -> Key {
        key.add_to(Key::builder(Use::Idempotency, &Namespace::default()))
            .build()
    }

    #[test]
    fn keys_of_different_origin_never_meet() {
        let keys = [
            BusinessKey::from_client("42".to_owned()).unwrap(),
            BusinessKey::named("42").unwrap(),
            BusinessKey::fields(KeyFields::new().field("42", "42")).unwrap(),
        ];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i + 1..] {
                assert_ne!(a, b);
                assert_ne!(record_key(a), record_key(b));
            }
        }
    }

    #[test]
    fn the_order_of_fields_does_not_matter_their_names_do() {
        let of = |fields: &[(&'static str, &str)]| {
            let fields = fields
                .iter()
                .fold(KeyFields::new(), |f, (name, value)| f.field(*name, value));
            record_key(&BusinessKey::fields(fields).unwrap())
        };
        assert_eq!(of(&[("a", "1"), ("b", "2")]), of(&[("b", "2"), ("a", "1")]));
        assert_ne!(of(&[("a", "1"), ("b", "2")]), of(&[("a", "2"), ("b", "1")]));
        assert_ne!(of(&[("a", "1b")]), of(&[("a", "1"), ("b", "x")]));
    }

    #[test]
    fn bad_fields_are_refused() {
        let of = BusinessKey::fields;
        assert_eq!(of(KeyFields::new()), Err(InvalidKey::Empty));
        assert_eq!(of(KeyFields::new().field("a", " ")), Err(InvalidKey::Empty));
        let twice = KeyFields::new().field("a", 1).field("a", 2);
        assert_eq!(of(twice), Err(InvalidKey::Repeated));
    }

    #[test]
    fn bad_text_is_refused() {
        let of = |text: &str| BusinessKey::named(text).map(drop);
        assert_eq!(of(""), Err(InvalidKey::Empty));
        assert_eq!(of("  "), Err(InvalidKey::Empty));
        assert_eq!(of(&"x".repeat(255)), Ok(()));
        assert_eq!(of(&"x".repeat(256)), Err(InvalidKey::TooLong));
        for bad in ["a\0", "a\n", "a\u{7f}", "caf\u{e9}"] {
            assert_eq!(of(bad), Err(InvalidKey::Character), "{bad:?}");
        }
    }

    #[test]
    fn debug_shows_nothing_of_a_key() {
        let fields = KeyFields::new().field("mail", "ada@example.org");
        for key in [
            BusinessKey::named("ada@example.org").unwrap(),
            BusinessKey::fields(fields).unwrap(),
        ] {
            assert!(!format!("{key:?}").contains("ada"), "{key:?}");
        }
    }
}
