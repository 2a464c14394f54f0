//! Record keys: what a store files a claim under.

use std::fmt;

use sha2::{Digest, Sha256};

/// What a key is used for. It is the first part of every [`Key`], so that two layers over one
/// store never meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Use {
    /// Idempotent requests.
    Idempotency,
    /// Leases on resources.
    Lease,
    /// Flights shared between processes.
    Flight,
    /// Moves of a user between regions.
    Move,
}

impl Use {
    /// The name that is hashed into the key and shown in labels: `idem`, `lease`, `flight`, `move`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Use::Idempotency => "idem",
            Use::Lease => "lease",
            Use::Flight => "flight",
            Use::Move => "move",
        }
    }
}

/// Keeps the keys of two applications that share one store apart: 1 to 64 of `A-Z a-z 0-9 _ -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace(String);

impl Namespace {
    /// Checks a namespace.
    ///
    /// # Errors
    ///
    /// [`InvalidNamespace`] unless `name` has 1 to 64 characters of `A-Z a-z 0-9 _ -`.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidNamespace> {
        let name = name.into();
        let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if (1..=64).contains(&name.len()) && name.bytes().all(legal) {
            Ok(Self(name))
        } else {
            Err(InvalidNamespace)
        }
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Namespace {
    /// `default`.
    fn default() -> Self {
        Self("default".to_owned())
    }
}

/// A namespace that is empty, over 64 characters, or has a character outside `A-Z a-z 0-9 _ -`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidNamespace;

impl fmt::Display for InvalidNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a namespace is 1 to 64 characters of A-Z, a-z, 0-9, `_` and `-`")
    }
}

impl std::error::Error for InvalidNamespace {}

/// The key of one claim: SHA-256 over its use, its namespace and its parts, each length-prefixed.
///
/// `Debug` shows the first eight hex digits only, `Display` all 64: business keys may be personal data,
/// and logs travel.
///
/// ```
/// use tower_claim::{Key, Namespace, Use};
///
/// let ns = Namespace::new("shop")?;
/// let a = Key::builder(Use::Lease, &ns).part("ab").part("c").build();
/// let b = Key::builder(Use::Lease, &ns).part("a").part("bc").build();
/// assert_ne!(a, b, "the border between two parts counts");
/// # Ok::<(), tower_claim::InvalidNamespace>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// Starts a key; its parts follow in order.
    pub fn builder(used_for: Use, namespace: &Namespace) -> KeyBuilder {
        KeyBuilder {
            hash: Sha256::new(),
        }
        .part("v1")
        .part(used_for.as_str())
        .part(namespace.as_str())
    }

    /// A key that a store handed out, for instance by a scan.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes a store files the record under.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first four bytes as eight hex digits: enough to find a record, too little to guess a key.
    pub fn prefix(&self) -> String {
        crate::hex::encode(&self.0[..4])
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}…)", self.prefix())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::hex::encode(&self.0))
    }
}

impl std::str::FromStr for Key {
    type Err = crate::hex::InvalidHex;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        crate::hex::decode(s).map(Self)
    }
}

/// Builds a [`Key`] from parts. Made by [`Key::builder`].
#[derive(Clone)]
pub struct KeyBuilder {
    hash: Sha256,
}

impl KeyBuilder {
    /// Adds one part, behind its length.
    #[must_use]
    pub fn part(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.hash.update((part.len() as u64).to_be_bytes());
        self.hash.update(part);
        self
    }

    /// The key.
    pub fn build(self) -> Key {
        Key(self.hash.finalize().into())
    }
}

impl fmt::Debug for KeyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyBuilder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(name: &str) -> Namespace {
        Namespace::new(name).unwrap()
    }

    #[test]
    fn a_use_and_a_namespace_keep_equal_parts_apart() {
        let keys = [
            Key::builder(Use::Lease, &ns("a")).part("x").build(),
            Key::builder(Use::Idempotency, &ns("a")).part("x").build(),
            Key::builder(Use::Lease, &ns("b")).part("x").build(),
            Key::builder(Use::Lease, &ns("a"))
                .part("x")
                .part("")
                .build(),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|b| a != b), "key {i} is met again");
        }
    }

    #[test]
    fn debug_shows_a_short_prefix_only() {
        let key = Key::builder(Use::Lease, &ns("a"))
            .part("account 42")
            .build();
        assert_eq!(
            format!("{key:?}")
                .chars()
                .filter(char::is_ascii_hexdigit)
                .count(),
            8 + 1 /* the e of Key */
        );
        assert_eq!(key.to_string().len(), 64);
        assert_eq!(key.to_string().parse::<Key>(), Ok(key));
    }

    #[test]
    fn a_namespace_has_1_to_64_plain_characters() {
        for bad in ["", "a b", "ü", "a/b", &"x".repeat(65)] {
            assert_eq!(Namespace::new(bad), Err(InvalidNamespace), "{bad:?}");
        }
        assert!(Namespace::new("x".repeat(64)).is_ok());
    }
}
