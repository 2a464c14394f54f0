//! The keys, and what they do.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use tower_claim::{ConfigError, Entropy, Key};

use super::{SEALED, SealError};

const NONCE: usize = 24;
const LONGEST_ID: usize = 64;

/// The keys that kept responses are sealed with: a current one, and older ones that records were sealed with which
/// are still kept.
///
/// XChaCha20-Poly1305 (an AEAD), with a random nonce of 192 bits for each record. The record's own key is bound to it: a
/// sealed record that somebody moves to another business key does not open there. What is sealed is the response.
/// Not sealed are the times, the label, the length and the fingerprint; from its SHA-256 a body that can be guessed can be
/// told, unless the layer has a [secret for it](crate::IdempotencyBuilder::fingerprint_secret).
///
/// **To rotate**, first give every process the new key as an [older](Self::older) one, then make it the current
/// one everywhere, and drop the old one when the last record under it has passed its
/// [retention](crate::IdempotencyBuilder::retention). A record whose key is not in the ring, or that does not open, is
/// never replayed and never run again: 503 `store-unavailable`, reason `record-unreadable`, with a detail that says
/// which key is missing.
///
/// ```
/// use tower_claim::MemoryStore;
/// use tower_idempotency::{IdempotencyLayer, KeyRing};
///
/// # let (this_year, last_year) = ([7; 32], [6; 32]);
/// let layer = IdempotencyLayer::builder(MemoryStore::new())
///     .seal_with(KeyRing::new("2026", this_year).older("2025", last_year))
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_claim::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "give it to `seal_with`"]
pub struct KeyRing {
    /// The current one first.
    keys: Vec<Named>,
    accepts_unsealed: bool,
}

#[derive(Clone)]
struct Named {
    id: Arc<str>,
    cipher: XChaCha20Poly1305,
    is_zero: bool,
}

impl KeyRing {
    /// A ring with a current key, 32 random bytes, under a name that tells it from all others, past and to come: 1
    /// to 64 visible ASCII characters. The name is written into each record in the clear.
    pub fn new(id: impl Into<Arc<str>>, key: [u8; 32]) -> Self {
        Self {
            keys: vec![Named::new(id.into(), key)],
            accepts_unsealed: false,
        }
    }

    /// Adds a key that opens records, and seals none.
    pub fn older(mut self, id: impl Into<Arc<str>>, key: [u8; 32]) -> Self {
        self.keys.push(Named::new(id.into(), key));
        self
    }

    /// Replays records that are not sealed, too: those from before the layer had keys. Default: they are not, because
    /// who can write to the store could plant one.
    pub fn accept_unsealed(mut self) -> Self {
        self.accepts_unsealed = true;
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |text: String| Err(ConfigError::new("seal_with", text));
        for (i, key) in self.keys.iter().enumerate() {
            let id = &key.id;
            let visible = id.bytes().all(|b| b.is_ascii_graphic());
            if id.is_empty() || id.len() > LONGEST_ID || !visible {
                return wrong(format!(
                    "name a key by 1 to {LONGEST_ID} visible ASCII characters"
                ));
            }
            if key.is_zero {
                return wrong(format!("the key `{id}` is all zeros: use 32 random bytes"));
            }
            if self.keys.iter().take(i).any(|other| other.id == *id) {
                return wrong(format!(
                    "two keys are named `{id}`: give each a name of its own"
                ));
            }
        }
        Ok(())
    }
}

impl Named {
    fn new(id: Arc<str>, key: [u8; 32]) -> Self {
        Self {
            id,
            cipher: XChaCha20Poly1305::new(&key.into()),
            is_zero: key == [0; 32],
        }
    }
}

/// Names only.
impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.keys.iter().map(|key| &*key.id).collect();
        f.debug_struct("KeyRing")
            .field("keys", &ids)
            .field("accepts_unsealed", &self.accepts_unsealed)
            .finish()
    }
}

/// Seals and opens records.
#[derive(Debug)]
pub(crate) struct Sealer {
    ring: KeyRing,
    entropy: Arc<dyn Entropy>,
}

impl Sealer {
    pub(crate) fn new(ring: KeyRing, entropy: Arc<dyn Entropy>) -> Self {
        Self { ring, entropy }
    }

    /// `None` for a record that no cipher takes: it is longer than 256 GiB.
    pub(crate) fn seal(&self, key: &Key, record: &[u8]) -> Option<Bytes> {
        let current = self.ring.keys.first()?;
        let mut out = Vec::with_capacity(2 + current.id.len() + NONCE + record.len() + 16);
        out.push(SEALED);
        out.push(u8::try_from(current.id.len()).ok()?);
        out.extend_from_slice(current.id.as_bytes());
        let bound = bound(key, &out);
        let mut nonce = [0; NONCE];
        self.entropy.fill(&mut nonce);
        out.extend_from_slice(&nonce);
        let payload = Payload {
            msg: record,
            aad: &bound,
        };
        let sealed = current.cipher.encrypt(&XNonce::from(nonce), payload);
        out.extend_from_slice(&sealed.ok()?);
        Some(out.into())
    }

    pub(crate) fn open(&self, key: &Key, record: &Bytes) -> Result<Bytes, SealError> {
        let [SEALED, length, rest @ ..] = &record[..] else {
            return match self.ring.accepts_unsealed && record.first() != Some(&SEALED) {
                true => Ok(record.clone()),
                false => Err(SealError::NotSealed),
            };
        };
        let (id, rest) = rest
            .split_at_checked(usize::from(*length))
            .ok_or(SealError::Cut)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>().ok_or(SealError::Cut)?;
        let named = self
            .ring
            .keys
            .iter()
            .find(|named| named.id.as_bytes() == id);
        let Some(named) = named else {
            // Foreign bytes: shown as far as a name may look.
            let id = id.iter().filter(|b| b.is_ascii_graphic());
            return Err(SealError::UnknownKey(id.map(|b| char::from(*b)).collect()));
        };
        let payload = Payload {
            msg: sealed,
            aad: &bound(key, &record[..2 + id.len()]),
        };
        let opened = named.cipher.decrypt(&XNonce::from(*nonce), payload);
        opened
            .map(Bytes::from)
            .map_err(|_| SealError::Forged(named.id.as_ref().to_owned()))
    }
}

/// What belongs to a sealed record without being in its secret part.
fn bound(key: &Key, head: &[u8]) -> Vec<u8> {
    [b"tower-idempotency record".as_slice(), key.as_bytes(), head].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tower_claim::OsEntropy;

    use super::*;

    /// 0, 1, 2, …
    #[derive(Debug)]
    struct Counting;

    impl Entropy for Counting {
        fn fill(&self, bytes: &mut [u8]) {
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = u8::try_from(i).unwrap_or(0);
            }
        }
    }

    fn sealer(ring: KeyRing) -> Sealer {
        ring.check().unwrap();
        Sealer::new(ring, Arc::new(OsEntropy))
    }

    fn key(n: u8) -> Key {
        Key::from_bytes([n; 32])
    }

    /// The bytes of version 0xE1, for ever: records of one release are opened by the next.
    #[test]
    fn a_sealed_record_looks_like_the_golden_file() {
        let golden = include_bytes!("golden/sealed-e1.bin");
        let mut sealer = sealer(KeyRing::new("2026-01", [7; 32]));
        sealer.entropy = Arc::new(Counting);
        let sealed = sealer.seal(&key(1), b"a record").unwrap();
        assert_eq!(sealed, golden.as_slice());
        let golden = Bytes::from_static(golden);
        assert_eq!(sealer.open(&key(1), &golden).unwrap(), "a record");
        assert!(golden.starts_with(b"\xE1\x072026-01\x00\x01\x02"));
    }

    #[test]
    fn after_a_rotation_older_records_open_and_new_ones_are_sealed_with_the_new_key() {
        let before = sealer(KeyRing::new("a", [1; 32]));
        let old = before.seal(&key(1), b"old").unwrap();
        let after = sealer(KeyRing::new("b", [2; 32]).older("a", [1; 32]));
        assert_eq!(after.open(&key(1), &old).unwrap(), "old");
        let new = after.seal(&key(1), b"new").unwrap();
        assert_eq!(
            before.open(&key(1), &new),
            Err(SealError::UnknownKey("b".to_owned()))
        );
        assert!(
            sealer(KeyRing::new("b", [2; 32]))
                .open(&key(1), &old)
                .is_err()
        );
    }

    #[test]
    fn another_key_of_the_same_name_opens_nothing() {
        let sealed = sealer(KeyRing::new("a", [1; 32]))
            .seal(&key(1), b"s")
            .unwrap();
        let other = sealer(KeyRing::new("a", [2; 32]));
        assert_eq!(
            other.open(&key(1), &sealed),
            Err(SealError::Forged("a".to_owned()))
        );
    }

    #[test]
    fn a_record_moved_to_another_key_does_not_open_there() {
        let sealer = sealer(KeyRing::new("a", [1; 32]));
        let sealed = sealer.seal(&key(1), b"s").unwrap();
        assert!(sealer.open(&key(1), &sealed).is_ok());
        assert_eq!(
            sealer.open(&key(2), &sealed),
            Err(SealError::Forged("a".to_owned()))
        );
    }

    #[test]
    fn what_is_not_sealed_is_trusted_only_when_told_to() {
        let plain = Bytes::from_static(b"\x02plain");
        let ring = KeyRing::new("a", [1; 32]);
        assert_eq!(
            sealer(ring.clone()).open(&key(1), &plain),
            Err(SealError::NotSealed)
        );
        let trusting = sealer(ring.accept_unsealed());
        assert_eq!(trusting.open(&key(1), &plain).unwrap(), plain);
        let cut = Bytes::from_static(&[SEALED]);
        assert!(trusting.open(&key(1), &cut).is_err());
    }

    #[test]
    fn no_two_records_look_alike() {
        let sealer = sealer(KeyRing::new("a", [1; 32]));
        let one = sealer.seal(&key(1), b"secret").unwrap();
        assert_ne!(one, sealer.seal(&key(1), b"secret").unwrap());
        assert!(!one.windows(6).any(|bytes| bytes == b"secret"));
    }

    #[test]
    fn bad_rings_are_refused_and_keys_are_never_shown() {
        let refused = |ring: KeyRing| ring.check().unwrap_err().to_string();
        assert!(refused(KeyRing::new("", [1; 32])).contains("name a key"));
        assert!(refused(KeyRing::new("a b", [1; 32])).contains("name a key"));
        assert!(refused(KeyRing::new("a".repeat(65), [1; 32])).contains("name a key"));
        assert!(refused(KeyRing::new("a", [0; 32])).contains("zeros"));
        let twice = KeyRing::new("a", [1; 32]).older("a", [2; 32]);
        assert!(refused(twice).contains("two keys"));
        assert!(KeyRing::new("a".repeat(64), [1; 32]).check().is_ok());
        let shown = format!("{:?}", KeyRing::new("a", [171; 32]));
        assert_eq!(shown, r#"KeyRing { keys: ["a"], accepts_unsealed: false }"#);
    }

    proptest! {
        #[test]
        fn a_changed_byte_never_opens(at in 0usize..60, bit in 0u8..8) {
            let sealer = sealer(KeyRing::new("a", [1; 32]));
            let mut sealed = sealer.seal(&key(1), b"a record of 18 byt").unwrap().to_vec();
            let at = at % sealed.len();
            sealed[at] ^= 1 << bit;
            prop_assert!(sealer.open(&key(1), &sealed.into()).is_err());
        }

        #[test]
        fn foreign_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..100), sealed: bool) {
            if sealed && let Some(first) = bytes.first_mut() {
                *first = SEALED;
            }
            let _ = sealer(KeyRing::new("a", [1; 32])).open(&key(1), &bytes.into());
        }
    }
}
