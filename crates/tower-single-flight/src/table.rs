//! Which flights are in the air: a sharded table from key to flight. A flight is only ever removed by its
//! identity: by key alone, the end of an old flight would take the entry of a newer one (golang/go #31420).

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// What the table keeps.
pub(crate) trait Keyed<K> {
    fn hash(&self) -> u64;
    fn key(&self) -> &K;
}

// Neighbouring shards must not share a cache line (lines are fetched in pairs on current x86).
#[repr(align(128))]
struct Shard<V>(Mutex<HashTable<Arc<V>>>);

pub(crate) struct Table<V> {
    shards: Box<[Shard<V>]>,
    // Keys come from clients: the seed is drawn per table.
    hasher: RandomState,
}

/// What to do with the flight that is there.
pub(crate) enum Verdict<R> {
    /// It serves: this is the answer.
    Keep(R),
    /// It does not: put a new one in its place.
    Replace,
}

/// The outcome of [`Table::enter`].
pub(crate) enum Entered<V, K, R> {
    New(Arc<V>),
    Found(Arc<V>, K, R),
}

impl<V> Table<V> {
    pub(crate) fn new(shards: usize) -> Self {
        let shards = (0..shards.next_power_of_two()).map(|_| Shard(Mutex::new(HashTable::new())));
        Self {
            shards: shards.collect(),
            hasher: RandomState::new(),
        }
    }

    pub(crate) fn hash<K: Hash>(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, HashTable<Arc<V>>> {
        // The table inside uses the low and the top bits.
        let index = (hash >> 32) as usize & (self.shards.len() - 1);
        let Shard(shard) = &self.shards[index];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter<K: Eq, R>(
        &self,
        hash: u64,
        key: K,
        judge: impl FnOnce(&V) -> Verdict<R>,
        make: impl FnOnce(K) -> V,
    ) -> Entered<V, K, R>
    where
        V: Keyed<K>,
    {
        let mut shard = self.shard(hash);
        let entry = shard.entry(hash, |v| v.hash() == hash && *v.key() == key, |v| v.hash());
        match entry {
            Entry::Occupied(mut entry) => match judge(entry.get()) {
                Verdict::Keep(answer) => Entered::Found(Arc::clone(entry.get()), key, answer),
                Verdict::Replace => {
                    let new = Arc::new(make(key));
                    let old = std::mem::replace(entry.get_mut(), Arc::clone(&new));
                    drop(shard);
                    drop(old);
                    Entered::New(new)
                }
            },
            Entry::Vacant(entry) => {
                let new = Arc::new(make(key));
                entry.insert(Arc::clone(&new));
                Entered::New(new)
            }
        }
    }

    /// Puts a new one in the place of `old`, if that is still there.
    pub(crate) fn succeed<K: Eq>(&self, old: &Arc<V>, make: impl FnOnce(u64) -> V) -> Option<Arc<V>>
    where
        V: Keyed<K>,
    {
        let mut shard = self.shard(old.hash());
        let place = shard.find_mut(old.hash(), |v| Arc::ptr_eq(v, old))?;
        let new = Arc::new(make(old.hash()));
        *place = Arc::clone(&new);
        Some(new)
    }

    pub(crate) fn remove<K>(&self, gone: &Arc<V>)
    where
        V: Keyed<K>,
    {
        let mut shard = self.shard(gone.hash());
        let Ok(entry) = shard.find_entry(gone.hash(), |v| Arc::ptr_eq(v, gone)) else {
            return;
        };
        let (removed, _) = entry.remove();
        // A burst of keys must not leave its table behind.
        if shard.capacity() > 64 && shard.len() * 8 < shard.capacity() {
            let room = shard.len() * 2;
            shard.shrink_to(room, |v| v.hash());
        }
        drop(shard);
        drop(removed);
    }

    pub(crate) fn fold<A>(&self, start: A, mut each: impl FnMut(A, &V) -> A) -> A {
        self.shards.iter().fold(start, |sum, Shard(shard)| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.iter().fold(sum, |sum, v| each(sum, v))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row(u64, u32);

    impl Keyed<u32> for Row {
        fn hash(&self) -> u64 {
            self.0
        }
        fn key(&self) -> &u32 {
            &self.1
        }
    }

    fn enter(table: &Table<Row>, key: u32) -> Arc<Row> {
        let hash = table.hash(&key);
        let judge = |_: &Row| Verdict::<()>::Replace;
        match table.enter(hash, key, judge, |key| Row(hash, key)) {
            Entered::New(row) | Entered::Found(row, ..) => row,
        }
    }

    #[test]
    fn an_old_flight_cannot_remove_a_newer_one() {
        let table = Table::new(4);
        let old = enter(&table, 7);
        let new = enter(&table, 7);
        table.remove(&old);
        assert_eq!(table.fold(0, |n, _| n + 1), 1);
        table.remove(&new);
        assert_eq!(table.fold(0, |n, _| n + 1), 0);
    }

    #[test]
    fn a_burst_of_keys_leaves_no_table_behind() {
        let table = Table::new(1);
        let rows: Vec<_> = (0..100_000).map(|key| enter(&table, key)).collect();
        rows.iter().for_each(|row| table.remove(row));
        assert!(table.shard(0).capacity() <= 64);
    }
}
