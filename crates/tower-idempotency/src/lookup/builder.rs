//! The settings of a lookup.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tower_claim::ConfigError;
use tower_claim::http::{
    BusinessKey, IntoBusinessKey, InvalidKey, KeySource, KeySyntax, original_uri,
};

use super::{Asked, Inner, KeyLookup};
use crate::entry::Source;
use crate::shared::Shared;

/// The longest that is waited for the end of a run.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Builds a [`KeyLookup`]. Made by [`KeyLookup::builder`].
///
/// ```
/// use std::time::Duration;
/// use tower_claim::MemoryStore;
/// use tower_idempotency::{IdempotencyLayer, KeyLookup};
///
/// let once = IdempotencyLayer::new(MemoryStore::new());
/// let lookup = KeyLookup::builder(&once)
///     .key_in_path() // axum: `.route_service("/idempotency-keys/{key}", lookup)`
///     .max_wait(Duration::from_secs(10))
///     .without_responses()
///     .build()?;
/// # let _ = lookup;
/// # Ok::<(), tower_claim::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct KeyLookupBuilder {
    shared: Arc<Shared>,
    source: Asked,
    max_wait: Duration,
    with_responses: bool,
}

impl KeyLookupBuilder {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            source: Asked::default(),
            max_wait: MAX_WAIT,
            with_responses: true,
        }
    }

    /// Takes the key that clients sent as the last segment of the path, percent-encoded: `/keys/8e03978e`, a space as
    /// `%20`. Paths are written to logs, headers mostly are not. Default: the key is where the layer finds it, in the
    /// same header. For keys that clients send: a key that the server makes is in no path.
    pub fn key_in_path(mut self) -> Self {
        self.source = Asked::InPath(KeySource::function(last_segment));
        self
    }

    /// Makes the key from the asking request, for layers whose keys are
    /// [derived](crate::IdempotencyBuilder::derived_key): text, a number, or the same
    /// [`KeyFields`](tower_claim::http::KeyFields). Default: where the layer finds it, by the layer's own function.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_claim::http::{KeyFields, path_segment};
    /// use tower_idempotency::{IdempotencyLayer, KeyLookup, RequestFields};
    ///
    /// let once = IdempotencyLayer::builder(MemoryStore::new())
    ///     .derived_from(RequestFields::new().form("invoice"))
    ///     .one_tenant()
    ///     .build()?;
    /// let invoice = path_segment("/reminders/{invoice}")?; // `GET /reminders/42`
    /// let lookup = KeyLookup::builder(&once)
    ///     .key_by(move |req| Some(KeyFields::new().field("invoice", invoice(req)?)))
    ///     .build()?;
    /// # let _ = lookup;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn key_by<F, K>(mut self, key: F) -> Self
    where
        F: Fn(&Parts) -> K + Send + Sync + 'static,
        K: IntoBusinessKey,
    {
        self.source = Asked::By(KeySource::function(key));
        self
    }

    /// The longest that a client may wait for the end of a run (`Prefer: wait=…`); who asks for more waits so long.
    /// Zero: nobody waits. Default: 30 seconds.
    pub fn max_wait(mut self, limit: Duration) -> Self {
        self.max_wait = limit;
        self
    }

    /// Tells that a key is done, and not how it was answered. Default: with the response, which the same client was
    /// sent before.
    pub fn without_responses(mut self) -> Self {
        self.with_responses = false;
        self
    }

    /// The lookup.
    ///
    /// # Errors
    ///
    /// The layer's keys are derived from the bodies of requests, which a question does not have, and nothing else
    /// was said; or they are made by the server in any way, and looked for [in paths](Self::key_in_path). Set
    /// [`key_by`](Self::key_by).
    pub fn build(self) -> Result<KeyLookup, ConfigError> {
        let by_body =
            matches!(&self.shared.entry.source, Source::Fields(derived) if derived.needs_body());
        if by_body && matches!(self.source, Asked::LikeTheLayer) {
            return Err(ConfigError::new(
                "key_by",
                "the layer's keys are in the bodies of its requests, and a question has none: set `key_by`"
                    .to_owned(),
            ));
        }
        let of_clients = match &self.shared.entry.source {
            Source::Head(source) => source.header_name().is_some(),
            Source::Fields(_) => false,
        };
        if !of_clients && matches!(self.source, Asked::InPath(_)) {
            return Err(ConfigError::new(
                "key_in_path",
                "the layer makes its keys itself, and a path has none of them: set `key_by`"
                    .to_owned(),
            ));
        }
        Ok(self.defaults())
    }

    pub(super) fn defaults(self) -> KeyLookup {
        KeyLookup {
            inner: Arc::new(Inner {
                shared: self.shared,
                source: self.source,
                max_wait: self.max_wait,
                with_responses: self.with_responses,
            }),
        }
    }
}

impl fmt::Debug for KeyLookupBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLookupBuilder")
            .field("source", &self.source)
            .field("max_wait", &self.max_wait)
            .field("with_responses", &self.with_responses)
            .finish_non_exhaustive()
    }
}

/// The key as a client sent it, in the last segment of the path.
fn last_segment(parts: &Parts) -> Result<Option<BusinessKey>, InvalidKey> {
    let uri = original_uri(&parts.extensions, &parts.uri);
    let segment = uri.path().rsplit('/').next().unwrap_or_default();
    let text = percent_decoded(segment)?;
    // As a quoted string, which every key can be written as.
    let mut quoted = Vec::with_capacity(text.len() + 2);
    quoted.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(byte);
    }
    quoted.push(b'"');
    KeySyntax::Strict.parse(&quoted).map(Some)
}

fn percent_decoded(text: &str) -> Result<Vec<u8>, InvalidKey> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = bytes.next().and_then(|b| char::from(b).to_digit(16));
            digit.ok_or(InvalidKey::Unreadable)
        };
        let (high, low) = (digit()?, digit()?);
        out.push(u8::try_from(high * 16 + low).map_err(|_| InvalidKey::Unreadable)?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(path: &str) -> Result<Option<BusinessKey>, InvalidKey> {
        let (parts, ()) = Request::get(path).body(()).unwrap().into_parts();
        last_segment(&parts)
    }

    #[test]
    fn a_key_in_the_path_is_the_key_of_the_header() {
        let header = |text: &str| KeySyntax::Lenient.parse(text.as_bytes()).unwrap();
        for (path, text) in [
            ("/keys/8e03978e", "8e03978e"),
            ("/keys/order%3A1%2f2?x=1", "order:1/2"),
            ("/keys/a%20%22b%22%5C", r#""a \"b\"\\""#),
        ] {
            assert_eq!(of(path).unwrap().unwrap(), header(text), "{path}");
        }
    }

    #[test]
    fn a_malformed_key_in_the_path_is_refused() {
        assert_eq!(of("/keys/"), Err(InvalidKey::Empty));
        for path in ["/keys/%", "/keys/%4", "/keys/%zz", "/keys/a%f"] {
            assert_eq!(of(path), Err(InvalidKey::Unreadable), "{path}");
        }
        for path in ["/keys/%00", "/keys/caf%C3%A9", "/keys/%0d%0a"] {
            assert!(of(path).is_err(), "{path}");
        }
        assert!(of(&format!("/keys/{}", "x".repeat(300))).is_err());
    }
}
