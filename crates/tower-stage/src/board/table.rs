//! The bounded table of slots.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::slot::{Shared, Slot};

/// Slots are made in chunks that never move, so a reader walks them without a lock.
const CHUNK: usize = 64;

/// Free slots are kept in shards, one per thread where there are not too many.
const SHARDS: usize = 16;

type Chunk = Box<[Arc<Slot>]>;
type Free = Mutex<Vec<Arc<Slot>>>;

#[derive(Debug)]
pub(crate) struct Table {
    chunks: Box<[OnceLock<Chunk>]>,
    /// How many slots there are.
    made: Mutex<usize>,
    free: [Free; SHARDS],
    max: usize,
    untracked: AtomicU64,
    pub(crate) shared: Arc<Shared>,
}

impl Table {
    pub(crate) fn new(max: usize, shared: Arc<Shared>) -> Self {
        Self {
            chunks: (0..max.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            made: Mutex::new(0),
            free: Default::default(),
            max,
            untracked: AtomicU64::new(0),
            shared,
        }
    }

    /// A free slot; `None`, and counted, when every slot has a request.
    pub(crate) fn take(&self) -> Option<Arc<Slot>> {
        let own = shard();
        let slot = self
            .pop(own)
            .or_else(|| (1..SHARDS).find_map(|step| self.pop((own + step) % SHARDS)))
            .or_else(|| self.grow(own));
        if slot.is_none() {
            self.untracked.fetch_add(1, Relaxed);
        }
        slot
    }

    pub(crate) fn give(&self, slot: Arc<Slot>) {
        locked(&self.free[shard()]).push(slot);
    }

    /// Every slot that was ever made, free ones too.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.chunks.iter().filter_map(OnceLock::get).flatten()
    }

    /// Requests that found no slot, since the start.
    pub(crate) fn untracked(&self) -> u64 {
        self.untracked.load(Relaxed)
    }

    /// Holds one lock at a time. `take` asks every shard before the table grows: a request often ends on
    /// another thread than it began, and its slot would lie idle next door.
    fn pop(&self, shard: usize) -> Option<Arc<Slot>> {
        locked(&self.free[shard]).pop()
    }

    fn grow(&self, own: usize) -> Option<Arc<Slot>> {
        let mut made = locked(&self.made);
        let end = self.max.min(*made + CHUNK);
        let chunk: Chunk = (*made..end)
            .map_while(|index| u32::try_from(index).ok())
            .map(|index| Arc::new(Slot::new(index, self.shared.clone())))
            .collect();
        let (first, rest) = chunk.split_first()?;
        let first = first.clone();
        locked(&self.free[own]).extend(rest.iter().cloned());
        let place = self.chunks.get(*made / CHUNK)?;
        *made += chunk.len();
        let _ = place.set(chunk);
        Some(first)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread's shard.
fn shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
    }
    let shard = SHARD.try_with(|shard| {
        shard.get().unwrap_or_else(|| {
            let next = THREADS.fetch_add(1, Relaxed) % SHARDS;
            shard.set(Some(next));
            next
        })
    });
    shard.unwrap_or(0)
}
