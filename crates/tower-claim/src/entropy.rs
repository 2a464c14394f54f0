//! The one source of randomness.

use std::fmt::Debug;

/// Where nonces and jitter come from. Inject another one to make a test repeatable.
pub trait Entropy: Debug + Send + Sync + 'static {
    /// Fills `bytes` with random bits.
    fn fill(&self, bytes: &mut [u8]);

    /// A random fraction in `0.0..1.0`, for jitter.
    fn fraction(&self) -> f64 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }
}

/// The operating system's randomness. The default.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        if getrandom::fill(bytes).is_err() {
            // The system call failed (a sandbox without it). A nonce must differ from all others, it
            // need not be secret: the standard library's keyed hasher is seeded apart per process and
            // per instance.
            use std::hash::{BuildHasher, RandomState};
            for (i, chunk) in bytes.chunks_mut(8).enumerate() {
                let word = RandomState::new().hash_one(i).to_le_bytes();
                chunk.copy_from_slice(&word[..chunk.len()]);
            }
        }
    }
}
