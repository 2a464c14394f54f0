//! Records at rest, sealed with a key that the store does not know (feature `aead`).
//!
//! ```text
//! version    u8       0xE1
//! key id     u8       its length, then its bytes
//! nonce      24 bytes
//! sealed     the record, encrypted by XChaCha20-Poly1305, and its tag of 16 bytes
//! ```
//!
//! What is bound to it without being in it: the fields before the nonce, and the key of the record, so that a record
//! that was moved to another key is not read there.

#[cfg(feature = "aead")]
mod ring;

use std::fmt;

#[cfg(feature = "aead")]
pub use ring::KeyRing;
#[cfg(feature = "aead")]
pub(crate) use ring::Sealer;

/// The first byte of a sealed record.
pub(crate) const SEALED: u8 = 0xE1;

/// Without the feature there are no keys.
#[cfg(not(feature = "aead"))]
#[derive(Debug)]
pub(crate) enum Sealer {}

#[cfg(not(feature = "aead"))]
impl Sealer {
    pub(crate) fn seal(&self, _: &tower_claim::Key, _: &[u8]) -> Option<bytes::Bytes> {
        match *self {}
    }

    pub(crate) fn open(
        &self,
        _: &tower_claim::Key,
        _: &bytes::Bytes,
    ) -> Result<bytes::Bytes, SealError> {
        match *self {}
    }
}

/// Why a record cannot be unsealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SealError {
    /// It is sealed, and this layer has no keys.
    NoKeys,
    /// The key it was sealed with is not in the ring.
    #[cfg(feature = "aead")]
    UnknownKey(String),
    /// The key of that name is another one, or the record was changed, or moved here from another key.
    #[cfg(feature = "aead")]
    Forged(String),
    /// It is not sealed, and only sealed ones are trusted.
    #[cfg(feature = "aead")]
    NotSealed,
    /// Too short.
    #[cfg(feature = "aead")]
    Cut,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys => f.write_str(
                "the record is sealed, and this layer has no keys: give it the key ring it was sealed with",
            ),
            #[cfg(feature = "aead")]
            Self::UnknownKey(id) => write!(
                f,
                "the record is sealed with the key `{id}`, which is not in the key ring: add it with `older`"
            ),
            #[cfg(feature = "aead")]
            Self::Forged(id) => write!(
                f,
                "the record does not open with the key `{id}` of this key ring: that is another key, or the \
                 record was changed or moved"
            ),
            #[cfg(feature = "aead")]
            Self::NotSealed => f.write_str(
                "the record is not sealed, and only sealed ones are trusted: see `accept_unsealed`",
            ),
            #[cfg(feature = "aead")]
            Self::Cut => f.write_str("the sealed record is too short"),
        }
    }
}

/// The ring as the builder has it.
#[cfg(feature = "aead")]
pub(crate) type Ring = KeyRing;
/// Without the feature there is none.
#[cfg(not(feature = "aead"))]
#[derive(Debug)]
pub(crate) enum Ring {}

#[cfg(feature = "aead")]
pub(crate) fn check(ring: Option<&Ring>) -> Result<(), tower_claim::ConfigError> {
    ring.map_or(Ok(()), KeyRing::check)
}

#[cfg(not(feature = "aead"))]
#[expect(
    clippy::unnecessary_wraps,
    reason = "the twin of the check with the feature"
)]
pub(crate) fn check(_: Option<&Ring>) -> Result<(), tower_claim::ConfigError> {
    Ok(())
}

pub(crate) fn sealer(
    ring: Option<Ring>,
    entropy: std::sync::Arc<dyn tower_claim::Entropy>,
) -> Option<Sealer> {
    #[cfg(feature = "aead")]
    return ring.map(|ring| Sealer::new(ring, entropy));
    #[cfg(not(feature = "aead"))]
    {
        drop(entropy);
        ring.map(|ring| match ring {})
    }
}
