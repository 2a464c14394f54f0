//! What must not change under one business key.

use std::fmt;

use sha2::{Digest, Sha256};

/// SHA-256 over what must not change under one business key.
///
/// Two claims of one key with different fingerprints are a *reuse* of the key, not a repeat.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Starts a fingerprint; its parts follow in order.
    pub fn builder() -> FingerprintBuilder {
        FingerprintBuilder {
            hash: Sha256::new(),
        }
    }

    /// A fingerprint read back from a store.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes a store keeps.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({}…)", crate::hex::encode(&self.0[..4]))
    }
}

/// Builds a [`Fingerprint`]. Made by [`Fingerprint::builder`].
#[derive(Clone)]
pub struct FingerprintBuilder {
    hash: Sha256,
}

impl FingerprintBuilder {
    /// Adds one part, behind its length. An absent part and an empty one differ.
    #[must_use]
    pub fn part(mut self, part: Option<&[u8]>) -> Self {
        match part {
            None => self.hash.update([0]),
            Some(part) => {
                self.hash.update([1]);
                self.hash.update((part.len() as u64).to_be_bytes());
                self.hash.update(part);
            }
        }
        self
    }

    /// The fingerprint.
    pub fn build(self) -> Fingerprint {
        Fingerprint(self.hash.finalize().into())
    }
}

impl fmt::Debug for FingerprintBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FingerprintBuilder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_empty_and_shifted_parts_all_differ() {
        let of = |parts: &[Option<&[u8]>]| {
            parts
                .iter()
                .fold(Fingerprint::builder(), |b, p| b.part(*p))
                .build()
        };
        let all = [
            of(&[]),
            of(&[None]),
            of(&[Some(b"")]),
            of(&[Some(b"ab"), Some(b"c")]),
            of(&[Some(b"a"), Some(b"bc")]),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(
                all[i + 1..].iter().all(|b| a != b),
                "fingerprint {i} is met again"
            );
        }
    }
}
