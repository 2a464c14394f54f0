//! The claims of this process that may still be under way.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tower_claim::{Key, Moment, Nonce};

/// How long a nonce is remembered at least whose claim this process did not send.
const STRANGE_SECS: u64 = 60;
/// So many are not worth a search for those that are dead.
const FEW: usize = 4096;

/// The claims of this process whose answer is missing, and the leases they asked for, in seconds. A
/// transaction that is still under way dies with the etcd lease it carries.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    claims: HashMap<(Key, Nonce), Doubt>,
    /// At how many to look for dead ones: so each that is added pays for a constant few.
    crowd: usize,
}

#[derive(Debug)]
struct Doubt {
    lease_secs: u64,
    /// Nothing of it can be under way any more.
    dead: Moment,
}

impl Doubts {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, key: Key, nonce: Nonce, lease_secs: u64, now: Moment) {
        // Thrice: an election begins a lease anew.
        let span = lease_secs.saturating_mul(3).saturating_add(STRANGE_SECS);
        let dead = now + Duration::from_secs(span);
        let mut all = self.lock();
        if all.claims.len() >= all.crowd.max(FEW) {
            all.claims.retain(|_, doubt| now < doubt.dead);
            all.crowd = all.claims.len() * 2;
        }
        all.claims.insert((key, nonce), Doubt { lease_secs, dead });
    }

    pub(crate) fn settle(&self, key: Key, nonce: Nonce) {
        self.lock().claims.remove(&(key, nonce));
    }

    /// For how long a copy of this claim may carry a living lease, in seconds.
    pub(crate) fn lease_secs(&self, key: Key, nonce: Nonce) -> u64 {
        let all = self.lock();
        let known = all.claims.get(&(key, nonce));
        known.map_or(0, |doubt| doubt.lease_secs).max(STRANGE_SECS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce(n: usize) -> Nonce {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        Nonce::from_bytes(bytes)
    }

    fn at(secs: u64) -> Moment {
        Moment::since_start(Duration::from_secs(secs))
    }

    #[test]
    fn a_claim_in_doubt_tells_its_lease_until_it_is_settled() {
        let (doubts, key) = (Doubts::default(), Key::from_bytes([1; 32]));
        assert_eq!(
            doubts.lease_secs(key, nonce(1)),
            STRANGE_SECS,
            "of another process"
        );
        doubts.add(key, nonce(1), 500, at(0));
        assert_eq!(doubts.lease_secs(key, nonce(1)), 500);
        doubts.settle(key, nonce(1));
        assert_eq!(doubts.lease_secs(key, nonce(1)), STRANGE_SECS);
    }

    #[test]
    fn the_dead_are_forgotten_and_the_living_never() {
        let (doubts, key) = (Doubts::default(), Key::from_bytes([1; 32]));
        doubts.add(key, nonce(0), 1_000_000, at(0));
        for n in 1..=10 * FEW {
            // Each is dead 63 s later.
            doubts.add(key, nonce(n), 1, at(n as u64));
        }
        assert_eq!(doubts.lease_secs(key, nonce(0)), 1_000_000);
        assert!(doubts.lock().claims.len() <= FEW + 1, "the dead stay");
        doubts.add(key, nonce(0), u64::MAX, at(0));
        assert_eq!(doubts.lease_secs(key, nonce(0)), u64::MAX, "no overflow");
    }
}
