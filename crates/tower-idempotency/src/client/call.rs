//! One logical call.

use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderValue;
use tower_claim::http::{BusinessKey, InvalidKey};
use tower_claim::{Entropy, Moment};

/// One logical call, in the extensions of each request that is sent for it: what it is sent under is drawn
/// once, by the first [`IdempotencyKeyLayer`](crate::IdempotencyKeyLayer) that sees it. Clones are the same call,
/// and clones of a request carry clones of it.
///
/// Needed where the layer sees each attempt as a request of its own: below a `Retry`, or in a loop. Above the
/// retries nothing is needed.
///
/// ```
/// use http::Request;
/// use tower_idempotency::LogicalCall;
///
/// let call = LogicalCall::new();
/// for _attempt in 0..3 {
///     let request = Request::post("/orders").extension(call.clone()).body("one coffee");
///     // … send it
///     # let _ = request;
/// }
/// ```
#[derive(Clone, Default)]
pub struct LogicalCall(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The key that is to be used, and its age when it was brought here.
    brought: Option<(String, Duration)>,
    sent: OnceLock<Sent>,
}

struct Sent {
    key: String,
    value: HeaderValue,
    since: Moment,
}

/// How a key is written into its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A structured field string.
    Quoted,
    Bare,
}

impl LogicalCall {
    /// A call that has no key yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A call that goes on after a restart, under the key it had, which was drawn so long ago.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] unless the key has 1 to 255 bytes of printable ASCII, not only spaces.
    pub fn resumed(key: impl Into<String>, age: Duration) -> Result<Self, InvalidKey> {
        let key = key.into();
        BusinessKey::named(key.as_str())?;
        Ok(Self(Arc::new(Inner {
            brought: Some((key, age)),
            sent: OnceLock::new(),
        })))
    }

    /// The key, `None` before the first attempt of a new call. Write it down before the call where it must
    /// survive a restart: make the key yourself then, with [`resumed`](Self::resumed) and an age of zero.
    pub fn key(&self) -> Option<&str> {
        match (self.0.sent.get(), &self.0.brought) {
            (Some(sent), _) => Some(&sent.key),
            (None, Some((key, _))) => Some(key),
            (None, None) => None,
        }
    }

    /// What it is sent under, drawn now if it is not yet.
    pub(super) fn value(&self, form: Form, entropy: &dyn Entropy, now: Moment) -> HeaderValue {
        let draw = || {
            let key = match &self.0.brought {
                Some((key, _)) => key.clone(),
                None => draw(entropy),
            };
            Sent {
                value: written(&key, form),
                key,
                since: now,
            }
        };
        self.0.sent.get_or_init(draw).value.clone()
    }

    /// How old its key is; `None` when it has none, or when the request carries another.
    pub(super) fn age(&self, value: &HeaderValue, now: Moment) -> Option<Duration> {
        let sent = self.0.sent.get().filter(|sent| sent.value == value)?;
        let before = self
            .0
            .brought
            .as_ref()
            .map_or(Duration::ZERO, |(_, age)| *age);
        Some(before.saturating_add(now.saturating_since(sent.since)))
    }
}

/// A random UUID (version 4): 122 random bits.
fn draw(entropy: &dyn Entropy) -> String {
    let mut bytes = [0; 16];
    entropy.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    let mut text = String::with_capacity(36);
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn written(key: &str, form: Form) -> HeaderValue {
    let text = match form {
        Form::Bare => key.to_owned(),
        Form::Quoted => format!("\"{}\"", key.replace('\\', r"\\").replace('"', "\\\"")),
    };
    // Printable ASCII is checked where keys come in, so this cannot fail; an empty value would be refused by the
    // server rather than run unguarded.
    HeaderValue::from_str(&text).unwrap_or(const { HeaderValue::from_static("") })
}

impl fmt::Debug for LogicalCall {
    /// Business keys may be personal data: whether there is one, no more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogicalCall")
            .field("has_key", &self.key().is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tower_claim::http::KeySyntax;

    use super::*;

    #[derive(Debug)]
    struct Ones;

    impl Entropy for Ones {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0xFF);
        }
    }

    #[test]
    fn what_is_drawn_is_a_uuid_of_version_4() {
        assert_eq!(draw(&Ones), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn a_key_is_drawn_once_and_grows_older() {
        let call = LogicalCall::new();
        assert_eq!(call.key(), None);
        let at = |secs| Moment::since_start(Duration::from_secs(secs));
        let value = call.value(Form::Quoted, &tower_claim::OsEntropy, at(10));
        assert_eq!(call.clone().value(Form::Bare, &Ones, at(20)), value);
        assert_eq!(call.age(&value, at(25)), Some(Duration::from_secs(15)));
        assert_eq!(call.age(&HeaderValue::from_static("mine"), at(25)), None);
    }

    #[test]
    fn a_resumed_call_has_its_key_and_its_age() {
        let call = LogicalCall::resumed(r#"a"b\c"#, Duration::from_secs(3600)).unwrap();
        assert_eq!(call.key(), Some(r#"a"b\c"#));
        let value = call.value(Form::Quoted, &Ones, Moment::default());
        let read = KeySyntax::Strict.parse(value.as_bytes()).unwrap();
        assert_eq!(read.as_client_text(), call.key());
        let age = call.age(&value, Moment::since_start(Duration::from_secs(1)));
        assert_eq!(age, Some(Duration::from_secs(3601)));
        assert!(LogicalCall::resumed("", Duration::ZERO).is_err());
        assert!(LogicalCall::resumed("ü", Duration::ZERO).is_err());
    }
}
