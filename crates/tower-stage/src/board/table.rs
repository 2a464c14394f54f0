//! The bounded table of slots.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::shared::Shared;
use super::slot::Slot;

/// Slots are made in chunks that never move, so a reader walks them without a lock.
const CHUNK: usize = 64;

type Chunk = Box<[Arc<Slot>]>;

#[derive(Debug)]
pub(crate) struct Table {
    chunks: Box<[OnceLock<Chunk>]>,
    /// How many slots there are.
    made: Mutex<usize>,
    max: usize,
    untracked: AtomicU64,
    pub(crate) shared: Arc<Shared>,
}

impl Table {
    pub(crate) fn new(max: usize, shared: Arc<Shared>) -> Self {
        Self {
            chunks: (0..max.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            made: Mutex::new(0),
            max,
            untracked: AtomicU64::new(0),
            shared,
        }
    }

    /// A free slot; `None`, and counted, when every slot has a request.
    pub(crate) fn take(&self) -> Option<Arc<Slot>> {
        let slot = self.free().or_else(|| self.grow());
        if slot.is_none() {
            self.untracked.fetch_add(1, Relaxed);
        }
        slot.cloned()
    }

    /// Every slot that was ever made, free ones too.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.chunks.iter().filter_map(OnceLock::get).flatten()
    }

    /// Requests that found no slot, since the start.
    pub(crate) fn untracked(&self) -> u64 {
        self.untracked.load(Relaxed)
    }

    fn free(&self) -> Option<&Arc<Slot>> {
        self.shared
            .free
            .take(|index| self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK))
    }

    fn grow(&self) -> Option<&Arc<Slot>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.max.min(*made + CHUNK);
        let chunk: Chunk = (*made..end)
            .map_while(|index| u32::try_from(index).ok())
            .map(|index| Arc::new(Slot::new(index, self.shared.clone())))
            .collect();
        if chunk.is_empty() {
            return None;
        }
        let place = self.chunks.get(*made / CHUNK)?;
        *made += chunk.len();
        // In its place before the first is free: whoever takes a slot looks for it there.
        let (first, rest) = place.get_or_init(|| chunk).split_first()?;
        rest.iter()
            .rev()
            .for_each(|slot| self.shared.free.give(slot));
        Some(first)
    }
}
