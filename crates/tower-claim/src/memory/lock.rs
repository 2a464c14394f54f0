//! A shard's lock.

use std::ops::{Deref, DerefMut};
#[cfg(test)]
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::shard::Shard;

/// A locked shard.
pub(super) struct Locked<'a> {
    shard: MutexGuard<'a, Shard>,
    #[cfg(test)]
    #[expect(dead_code, reason = "measures until it is dropped")]
    hold: hold::Hold<'a>,
}

impl<'a> Locked<'a> {
    /// Nothing under the lock is meant to panic; if it did, one poisoned shard would be an outage.
    pub(super) fn new(shard: &'a Mutex<Shard>, #[cfg(test)] long_holds: &'a AtomicU64) -> Self {
        Self {
            shard: shard.lock().unwrap_or_else(PoisonError::into_inner),
            #[cfg(test)]
            hold: hold::Hold::begin(long_holds),
        }
    }
}

impl Deref for Locked<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

#[cfg(test)]
mod hold {
    //! How long locks are held, counted in CPU time of the holder: what other programs do meanwhile is
    //! not the store's.

    use std::sync::atomic::{AtomicU64, Ordering};

    pub(super) struct Hold<'a> {
        long: &'a AtomicU64,
        began: u64,
    }

    impl<'a> Hold<'a> {
        pub(super) fn begin(long: &'a AtomicU64) -> Self {
            Self {
                long,
                began: cpu_nanos(),
            }
        }
    }

    impl Drop for Hold<'_> {
        fn drop(&mut self) {
            if cpu_nanos() - self.began > 1_000_000 {
                self.long.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn cpu_nanos() -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn cpu_nanos() -> u64 {
        0
    }
}
