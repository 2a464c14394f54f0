//! A fingerprint that only who knows a secret can make.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tower_claim::Fingerprint;

const LENGTH: usize = 32;
/// What SHA-256 works on at once: HMAC pads its key to that.
const BLOCK: usize = 64;

/// Where the bodies of requests can be guessed, a plain hash at rest gives them away.
#[derive(Clone)]
pub(crate) struct Secret(Hmac<Sha256>);

impl Secret {
    pub(crate) fn new(secret: [u8; LENGTH]) -> Self {
        let mut block = [0; BLOCK];
        block[..LENGTH].copy_from_slice(&secret);
        Self(Hmac::new(&block.into()))
    }

    /// HMAC-SHA-256 of a fingerprint.
    pub(crate) fn of(&self, plain: &Fingerprint) -> Fingerprint {
        let mac = self.0.clone().chain_update(plain.as_bytes());
        Fingerprint::from_bytes(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_hmac_sha_256_as_others_compute_it() {
        let plain = Fingerprint::from_bytes([7; 32]);
        let made = Secret::new([1; 32]).of(&plain);
        // openssl mac -digest SHA256 -macopt hexkey:01…01 -in (32 bytes of 07) HMAC
        let golden = "4330e88aef0c66dc2a022889e4d5757d2b450054a19d7f27ee81b2e0a448fab4";
        let hex = |byte: &u8| format!("{byte:02x}");
        assert_eq!(made.as_bytes().iter().map(hex).collect::<String>(), golden);
    }
}
