//! The store behind its clones: shards, room, clock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hashbrown::DefaultHashBuilder;
use tokio::sync::Notify;

use super::lock::Locked;
use super::room::Room;
use super::shard::{FEW, NoRoom, RECORD_BYTES, Shard, Spread, Terms};
use crate::record::{At, Record, Watching};
use crate::store::{FinishRequest, ScanPage, StoreTime, Value};
use crate::{Clock, Key, StoreError, Token};

/// Records of one shard that a search for room looks at in one go.
const SOME: usize = 64;
/// Records on one page of a scan, at most.
const PAGE: usize = 256;

pub(super) struct Inner {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) room: Room,
    hasher: DefaultHashBuilder,
    /// A power of two of them.
    shards: Box<[Mutex<Shard>]>,
    /// The latest wall time seen: tokens do not follow a wall clock that is set back.
    unix_ms: AtomicU64,
    /// Where the next search for room begins.
    sweep: AtomicUsize,
    #[cfg(test)]
    long_holds: AtomicU64,
}

impl Inner {
    pub(super) fn new(clock: Arc<dyn Clock>, room: Room, shards: usize) -> Self {
        let hasher = DefaultHashBuilder::default();
        let shards = (0..shards)
            .map(|_| Mutex::new(Shard::new(hasher.clone())))
            .collect();
        Self {
            clock,
            room,
            hasher,
            shards,
            unix_ms: AtomicU64::new(0),
            sweep: AtomicUsize::new(0),
            #[cfg(test)]
            long_holds: AtomicU64::new(0),
        }
    }

    pub(super) fn now(&self) -> StoreTime {
        let micros = self.clock.now().elapsed().as_micros();
        StoreTime::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Read under the lock, so that the times in one record never go back.
    pub(super) fn at(&self) -> At {
        let read = u64::try_from(self.clock.unix_time().as_millis()).unwrap_or(u64::MAX);
        let seen = self.unix_ms.load(Ordering::Relaxed);
        let unix_ms = if read > seen {
            self.unix_ms.fetch_max(read, Ordering::Relaxed).max(read)
        } else {
            seen
        };
        At {
            now: self.now(),
            unix_ms,
        }
    }

    pub(super) fn spread(&self, key: &Key) -> Spread {
        Spread::of(&self.hasher, key)
    }

    pub(super) fn shard_of(&self, spread: Spread) -> usize {
        spread.shard as usize & (self.shards.len() - 1)
    }

    pub(super) fn lock(&self, spread: Spread) -> Locked<'_> {
        self.lock_nth(self.shard_of(spread))
    }

    pub(super) fn lock_nth(&self, shard: usize) -> Locked<'_> {
        Locked::new(
            &self.shards[shard],
            #[cfg(test)]
            &self.long_holds,
        )
    }

    #[cfg(test)]
    pub(super) fn holds_over_a_millisecond(&self) -> u64 {
        self.long_holds.load(Ordering::Relaxed)
    }

    pub(super) fn watched(&self) -> usize {
        let shards = 0..self.shards.len();
        shards.map(|n| self.lock_nth(n).watchers.len()).sum()
    }

    /// Applies a move. Looks for room once, where it needs some.
    pub(super) fn change<R>(
        &self,
        key: &Key,
        mut op: impl FnMut(&mut Record, At, &mut Terms) -> R,
    ) -> Result<R, StoreError> {
        let mut searched = false;
        loop {
            if let Ok(answer) = self.try_change(key, &mut op) {
                return Ok(answer);
            }
            if searched || !self.make_room(1, RECORD_BYTES) {
                return Err(StoreError::Full);
            }
            searched = true;
        }
    }

    fn try_change<R>(
        &self,
        key: &Key,
        op: &mut impl FnMut(&mut Record, At, &mut Terms) -> R,
    ) -> Result<R, NoRoom> {
        let spread = self.spread(key);
        let mut shard = self.lock(spread);
        let at = self.at();
        shard.expire(at, FEW, &self.room);
        let room = (&self.room, false);
        let (answer, wake) = shard.change(spread.bucket, key, at, room, |record, terms| {
            op(record, at, terms)
        });
        drop(shard);
        wake_all(wake);
        answer
    }

    pub(super) fn look<R>(&self, key: &Key, read: impl FnOnce(Option<&Record>, At) -> R) -> R {
        let spread = self.spread(key);
        let mut shard = self.lock(spread);
        let at = self.at();
        shard.expire(at, FEW, &self.room);
        read(shard.look(spread.bucket, key, at), at)
    }

    pub(super) fn watching(&self, key: &Key, token: Token) -> Watching {
        self.look(key, |record, at| match record {
            Some(record) => record.watch(token, at),
            None => Record::vacant().watch(token, at),
        })
    }

    /// Looks for a body's room before the finish that needs it.
    pub(super) fn prepare(&self, request: &FinishRequest) {
        if let Value::Kept(body) = &request.value {
            self.make_room(0, body.len());
        }
    }

    /// Drops what ended by time, in all shards if it must be, until this fits. One lock at a time.
    pub(super) fn make_room(&self, records: usize, bytes: usize) -> bool {
        if self.room.has(records, bytes) {
            return true;
        }
        let begin = self.sweep.fetch_add(1, Ordering::Relaxed);
        for n in 0..self.shards.len() {
            let shard = begin.wrapping_add(n) & (self.shards.len() - 1);
            let mut more = true;
            while more {
                let mut shard = self.lock_nth(shard);
                let at = self.at();
                more = shard.expire(at, SOME, &self.room);
                drop(shard);
                if self.room.has(records, bytes) {
                    return true;
                }
            }
        }
        false
    }

    /// One page in the order of (shard, hash, key): a place that stays even when its record goes.
    pub(super) fn scan(&self, from: Option<Key>, limit: usize) -> ScanPage {
        let limit = limit.clamp(1, PAGE);
        let from = from.map(|key| (self.spread(&key), key));
        let first = from.map_or(0, |(spread, _)| self.shard_of(spread));
        let mut records = Vec::new();
        for n in first..self.shards.len() {
            let place = from.filter(|_| n == first);
            let place = place.map(|(spread, key)| (spread.bucket, key));
            let shard = self.lock_nth(n);
            // One more than asked for: it says where the next page begins.
            shard.scan(place, limit + 1 - records.len(), self.at(), &mut records);
            drop(shard);
            if records.len() > limit {
                break;
            }
        }
        let next = records.get(limit).map(|record| record.key);
        records.truncate(limit);
        ScanPage { records, next }
    }
}

/// Outside the lock: waking a crowd takes its time.
pub(super) fn wake_all(wake: Option<Arc<Notify>>) {
    if let Some(notify) = wake {
        notify.notify_waiters();
    }
}
