//! The free slots of a table.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::slot::Slot;

/// Free slots are kept in shards, one per thread where there are not too many.
const SHARDS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct FreeList([Shard; SHARDS]);

impl FreeList {
    pub(crate) fn give(&self, slot: &Slot) {
        self.0[own()].push(slot);
    }

    /// A slot of this thread's shard, else of another: a request often ends on another thread than it
    /// began, and its slot would lie idle next door.
    pub(crate) fn take<'a>(
        &self,
        slot_of: impl Fn(usize) -> Option<&'a Arc<Slot>>,
    ) -> Option<&'a Arc<Slot>> {
        let own = own();
        (0..SHARDS).find_map(|step| self.0[(own + step) % SHARDS].pop(&slot_of))
    }
}

/// A stack whose links run through the slots themselves. In the low half one more than the index of the
/// slot on top, 0 if there is none; in the high half the number of changes, without which a `pop` might put
/// back a slot that was taken, and given back, while it looked.
///
/// Alone on its cache line, so that threads that work on two shards do not meet.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(AtomicU64);

impl Shard {
    fn push(&self, slot: &Slot) {
        let mut head = self.0.load(Relaxed);
        loop {
            slot.below.store(head as u32, Relaxed);
            match self.replace(head, slot.index() + 1) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop<'a>(&self, slot_of: impl Fn(usize) -> Option<&'a Arc<Slot>>) -> Option<&'a Arc<Slot>> {
        let mut head = self.0.load(Acquire);
        loop {
            let top = (head as u32).checked_sub(1)?;
            let slot = slot_of(usize::try_from(top).ok()?)?;
            // Of a slot that was taken meanwhile this is nonsense; then the head has changed as well.
            match self.replace(head, slot.below.load(Relaxed)) {
                Ok(_) => return Some(slot),
                Err(now) => head = now,
            }
        }
    }

    fn replace(&self, head: u64, top: u32) -> Result<u64, u64> {
        let changes = (head >> 32).wrapping_add(1) << 32;
        self.0
            .compare_exchange_weak(head, changes | u64::from(top), AcqRel, Acquire)
    }
}

/// This thread's shard.
fn own() -> usize {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tower_claim::SystemClock;

    use super::super::shared::Shared;
    use super::*;

    /// Three slots in one shard: every `pop` looks at a slot that another thread may take, and give back
    /// upon another one, before it has the head.
    #[test]
    fn no_slot_is_taken_twice_or_lost() {
        let shared = Arc::new(Shared::new(Arc::new(SystemClock), 0, None));
        let slots: Vec<_> = (0..3)
            .map(|index| Arc::new(Slot::new(index, shared.clone())))
            .collect();
        let slot_of = |index: usize| slots.get(index);
        let taken: Vec<_> = slots.iter().map(|_| AtomicBool::new(false)).collect();
        let shard = Shard::default();
        slots.iter().for_each(|slot| shard.push(slot));
        let take = || {
            let slot = shard.pop(slot_of)?;
            assert!(!taken[slot.index() as usize].swap(true, AcqRel));
            Some(slot)
        };
        let give = |slot: &Slot| {
            assert!(taken[slot.index() as usize].swap(false, AcqRel));
            shard.push(slot);
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        let (first, second) = (take(), take());
                        first.into_iter().chain(second).for_each(|slot| give(slot));
                    }
                });
            }
        });
        assert_eq!(std::iter::from_fn(take).count(), slots.len());
    }
}
