//! One shard: a table of hashes over slots, a wheel, and who watches.

use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::mem::size_of;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use tokio::sync::Notify;

use super::room::Room;
use super::slab::{Slab, Slot};
use super::wheel::Wheel;
use crate::record::{At, Record};
use crate::store::RecordView;
use crate::{Key, Settings};

pub(super) const SLOT_BYTES: usize = size_of::<Slot>();
/// A bucket and its control byte.
pub(super) const BUCKET_BYTES: usize = size_of::<Bucket>() + 1;
/// What a record is counted as beside its body: its slot, and its share of a table that is 7/16 full, which
/// is the least after it has grown.
pub(super) const RECORD_BYTES: usize = SLOT_BYTES + BUCKET_BYTES * 16 / 7;

/// Records that one operation looks at, at most, to find those that ended by time.
pub(super) const FEW: usize = 4;

#[derive(Debug)]
pub(super) struct Shard {
    hasher: DefaultHashBuilder,
    table: HashTable<Bucket>,
    slab: Slab,
    wheel: Wheel,
    terms: Terms,
    pub(super) watchers: HashMap<Key, Watchers>,
}

/// The hash is kept here, so that growing the table reads this table only, in order.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    hash: u32,
    index: u32,
}

impl Bucket {
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

#[derive(Debug)]
pub(super) struct Watchers {
    pub(super) notify: Arc<Notify>,
    pub(super) seats: usize,
}

/// No room for a new record.
#[derive(Debug)]
pub(super) struct NoRoom;

/// What a move answered, and whom to wake once the lock is free.
pub(super) type Outcome<R> = (Result<R, NoRoom>, Option<Arc<Notify>>);

impl Shard {
    pub(super) fn new(hasher: DefaultHashBuilder) -> Self {
        Self {
            hasher,
            table: HashTable::new(),
            slab: Slab::new(),
            wheel: Wheel::new(),
            terms: Terms::default(),
            watchers: HashMap::new(),
        }
    }

    fn find(&self, hash: u32, key: &Key) -> Option<u32> {
        let same = |bucket: &Bucket| bucket.hash == hash && self.slab.get(bucket.index).key == *key;
        let found = self.table.find(Bucket::spread(hash), same);
        found.map(|bucket| bucket.index)
    }

    /// Whether there is a record, even one with nothing to say.
    pub(super) fn has(&self, hash: u32, key: &Key) -> bool {
        self.find(hash, key).is_some()
    }

    /// The record, if it has anything to say.
    pub(super) fn look(&self, hash: u32, key: &Key, at: At) -> Option<&Record> {
        let record = &self.slab.get(self.find(hash, key)?).record;
        (!record.is_forgettable(at)).then_some(record)
    }

    /// Applies a move to the record of a key. A move on a key never seen is applied to a vacant record,
    /// which is then kept if it has anything to say, in room taken now or `reserved` before.
    pub(super) fn change<R>(
        &mut self,
        hash: u32,
        key: &Key,
        at: At,
        (room, reserved): (&Room, bool),
        op: impl FnOnce(&mut Record, &mut Terms) -> R,
    ) -> Outcome<R> {
        let Some(index) = self.find(hash, key) else {
            let mut record = Record::vacant();
            let answer = op(&mut record, &mut self.terms);
            if record.is_vacant() || record.is_forgettable(at) {
                return (Ok(answer), None);
            }
            if !reserved && !room.take_records(1, RECORD_BYTES) {
                return (Err(NoRoom), None);
            }
            room.take_anyway(record.heap_bytes());
            self.insert(hash, *key, record);
            return (Ok(answer), self.woken(key));
        };

        let record = &mut self.slab.get_mut(index).record;
        let (stamp, due, heap) = (record.stamp(), record.due_at(), record.heap_bytes());
        if record.is_forgettable(at) {
            *record = Record::vacant();
        }
        let answer = op(record, &mut self.terms);
        let now_heap = record.heap_bytes();
        if now_heap > heap {
            if !room.take(now_heap - heap) {
                record.drop_body();
                room.take_anyway(record.heap_bytes());
                room.give_back(heap);
            }
        } else {
            room.give_back(heap - now_heap);
        }
        let (ended, sooner) = (record.stamp() != stamp, record.due_at());
        if sooner < due {
            self.wheel.remove(&mut self.slab, index);
            self.wheel.insert(&mut self.slab, index, sooner);
        }
        let wake = if ended { self.woken(key) } else { None };
        (Ok(answer), wake)
    }

    fn insert(&mut self, hash: u32, key: Key, record: Record) {
        let due = record.due_at();
        let index = self.slab.insert(key, record);
        self.wheel.insert(&mut self.slab, index, due);
        let rehash = |bucket: &Bucket| Bucket::spread(bucket.hash);
        self.table
            .insert_unique(Bucket::spread(hash), Bucket { hash, index }, rehash);
    }

    fn woken(&self, key: &Key) -> Option<Arc<Notify>> {
        if self.watchers.is_empty() {
            return None;
        }
        let watchers = self.watchers.get(key);
        watchers.map(|watchers| Arc::clone(&watchers.notify))
    }

    /// Looks at the next records that may have ended by time, `at_most` so many; true when there may be
    /// more of them.
    pub(super) fn expire(&mut self, at: At, at_most: usize, room: &Room) -> bool {
        for _ in 0..at_most {
            let Some(index) = self.wheel.pop(&mut self.slab, at.now) else {
                return false;
            };
            let Slot { key, record, .. } = self.slab.get_mut(index);
            let heap = record.heap_bytes();
            record.settle(at.now);
            let due = record.due_at();
            if due > at.now {
                room.give_back(heap - record.heap_bytes());
                self.wheel.insert(&mut self.slab, index, due);
            } else if record.is_forgettable(at) {
                room.give_back_record(RECORD_BYTES + heap);
                let hash = Spread::of(&self.hasher, key).bucket;
                self.forget(hash, index);
            } else {
                // Only its token keeps it: it is ahead of the wall clock, which was set back, or it was
                // granted above an inflated floor.
                room.give_back(heap - record.heap_bytes());
                let due = at.now.saturating_add(record.token_ahead(at.unix_ms));
                self.wheel.insert(&mut self.slab, index, due);
            }
        }
        true
    }

    fn forget(&mut self, hash: u32, index: u32) {
        let same = |bucket: &Bucket| bucket.index == index;
        if let Ok(entry) = self.table.find_entry(Bucket::spread(hash), same) {
            entry.remove();
        }
        self.slab.remove(index);
    }

    /// Adds at most `limit` records in the order of (hash, key), from this place on.
    pub(super) fn scan(
        &self,
        from: Option<(u32, Key)>,
        limit: usize,
        at: At,
        into: &mut Vec<RecordView>,
    ) {
        let key = |bucket: &Bucket| self.slab.get(bucket.index).key;
        // Reads a slot only where two hashes are equal: slots are far apart.
        let order = |a: &Bucket, b: &Bucket| {
            let hashes = a.hash.cmp(&b.hash);
            hashes.then_with(|| key(a).cmp(&key(b)))
        };
        let within = |bucket: &&Bucket| {
            from.is_none_or(|(hash, first)| match bucket.hash.cmp(&hash) {
                Ordering::Equal => key(bucket) >= first,
                hashes => hashes == Ordering::Greater,
            })
        };
        let speaks = |bucket: &&Bucket| {
            let record = &self.slab.get(bucket.index).record;
            !record.is_forgettable(at)
        };
        let mut found: Vec<Bucket> = self.table.iter().filter(within).copied().collect();
        let mut wanted = limit;
        while wanted > 0 && !found.is_empty() {
            let mut next = if found.len() > wanted {
                // Without sorting all: the shard is locked.
                found.select_nth_unstable_by(wanted, order);
                let rest = found.split_off(wanted);
                std::mem::replace(&mut found, rest)
            } else {
                std::mem::take(&mut found)
            };
            next.sort_unstable_by(order);
            for bucket in next.iter().filter(speaks) {
                let slot = self.slab.get(bucket.index);
                into.push(slot.record.peek(slot.key, at));
                wanted -= 1;
            }
        }
    }
}

/// A key's hash: one half picks the shard, the other the bucket. Seeded, so that nobody who chooses
/// business keys can crowd one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    pub(super) shard: u32,
    pub(super) bucket: u32,
}

impl Spread {
    pub(super) fn of(hasher: &DefaultHashBuilder, key: &Key) -> Self {
        let hash = hasher.hash_one(key.as_bytes());
        Self {
            shard: (hash >> 32) as u32,
            bucket: hash as u32,
        }
    }
}

/// Owners of one layer bring the same terms: they share one copy.
#[derive(Debug, Default)]
pub(super) struct Terms {
    last: [Option<Arc<Settings>>; 4],
    next: usize,
}

impl Terms {
    pub(super) fn share(&mut self, settings: &Settings) -> Arc<Settings> {
        let known = self
            .last
            .iter()
            .flatten()
            .find(|known| same(known, settings));
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let terms = Arc::new(settings.clone());
        self.last[self.next] = Some(Arc::clone(&terms));
        self.next = (self.next + 1) % self.last.len();
        terms
    }
}

fn same(a: &Settings, b: &Settings) -> bool {
    let label = Arc::ptr_eq(&a.label, &b.label) || a.label == b.label;
    label
        && a.lease == b.lease
        && a.cooling == b.cooling
        && a.min_hold == b.min_hold
        && a.on_lapse == b.on_lapse
        && a.unfinished_keep == b.unfinished_keep
}
