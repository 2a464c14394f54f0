//! Observe mode: counts what would have been merged, and merges nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::response::Parts;
use tower_claim::Moment;

use super::response::is_personal;
use crate::counts::Counters;
use crate::table::{Entered, Keyed, Table, Verdict};

/// The calls that could be joined right now if the layer were on.
pub(super) struct Observed {
    table: Table<Seen>,
    max_age: Duration,
    counters: Arc<Counters>,
}

/// A request that would have led.
pub(super) struct Seen {
    hash: u64,
    key: Vec<u8>,
    since: Moment,
    followers: AtomicU64,
}

impl Keyed<Vec<u8>> for Seen {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn key(&self) -> &Vec<u8> {
        &self.key
    }
}

/// Ends with the would-be leader's call.
pub(super) struct Watch {
    observed: Arc<Observed>,
    seen: Arc<Seen>,
}

impl Observed {
    pub(super) fn new(shards: usize, max_age: Duration, counters: Arc<Counters>) -> Self {
        Self {
            table: Table::new(shards),
            max_age,
            counters,
        }
    }

    /// A request came. Answers a watch if it would have led.
    pub(super) fn watch(self: &Arc<Self>, key: Vec<u8>, fresh: bool, now: Moment) -> Option<Watch> {
        self.counters.observed.add();
        let hash = self.table.hash(&key);
        let judge = |seen: &Seen| {
            if fresh || now.saturating_since(seen.since) >= self.max_age {
                return Verdict::Replace;
            }
            seen.followers.fetch_add(1, Ordering::Relaxed);
            Verdict::Keep(())
        };
        let make = |key| Seen {
            hash,
            key,
            since: now,
            followers: AtomicU64::new(0),
        };
        match self.table.enter(hash, key, judge, make) {
            Entered::New(seen) => Some(Watch {
                observed: Arc::clone(self),
                seen,
            }),
            Entered::Found(..) => {
                self.counters.observed_followers.add();
                None
            }
        }
    }
}

impl Watch {
    pub(super) fn head(self, parts: &Parts) {
        if is_personal(parts) {
            let followers = self.seen.followers.load(Ordering::Relaxed);
            self.observed
                .counters
                .observed_unshareable
                .add_many(followers);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.observed.table.remove(&self.seen);
    }
}
