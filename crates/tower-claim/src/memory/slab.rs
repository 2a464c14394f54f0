//! Where a shard's records lie: blocks that never move, so that growth copies nothing.

use crate::Key;
use crate::record::Record;

/// Records per block.
const BLOCK: usize = 32;

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    pub(super) record: Record,
    pub(super) links: Links,
}

/// A slot's place in a list of the wheel, or in the list of free slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    pub(super) prev: u32,
    pub(super) next: u32,
}

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Slab {
    blocks: Vec<Vec<Slot>>,
    free: u32,
}

impl Slab {
    pub(super) fn new() -> Self {
        Self {
            blocks: Vec::new(),
            free: NONE,
        }
    }

    pub(super) fn insert(&mut self, key: Key, record: Record) -> u32 {
        let links = Links {
            prev: NONE,
            next: NONE,
        };
        let slot = Slot { key, record, links };
        if self.free != NONE {
            let index = self.free;
            let place = self.get_mut(index);
            let next = place.links.next;
            *place = slot;
            self.free = next;
            return index;
        }
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        let full = (self.blocks.len() - 1) * BLOCK;
        let last = self.blocks.len() - 1;
        let block = &mut self.blocks[last];
        block.push(slot);
        // A shard has far less than 2^31 records: the builder sees to it.
        (full + block.len() - 1) as u32
    }

    /// Frees a slot that is in no list.
    pub(super) fn remove(&mut self, index: u32) {
        let next = self.free;
        let slot = self.get_mut(index);
        slot.record = Record::vacant();
        slot.links = Links { prev: NONE, next };
        self.free = index;
    }

    pub(super) fn get(&self, index: u32) -> &Slot {
        let index = index as usize;
        &self.blocks[index / BLOCK][index % BLOCK]
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut Slot {
        let index = index as usize;
        &mut self.blocks[index / BLOCK][index % BLOCK]
    }
}
