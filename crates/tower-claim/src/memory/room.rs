//! How much room is left.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what the shards keep. A claim takes its room before it is granted, so a finished outcome
/// never lacks it.
#[derive(Debug)]
pub(super) struct Room {
    bytes_limit: usize,
    records_limit: usize,
    bytes: AtomicUsize,
    records: AtomicUsize,
}

impl Room {
    pub(super) fn new(bytes_limit: usize, records_limit: usize) -> Self {
        Self {
            bytes_limit,
            records_limit,
            bytes: AtomicUsize::new(0),
            records: AtomicUsize::new(0),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn records(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    /// Takes room for new records, if there is any.
    pub(super) fn take_records(&self, count: usize, bytes: usize) -> bool {
        if !take(&self.records, count, self.records_limit) {
            return false;
        }
        let taken = take(&self.bytes, bytes, self.bytes_limit);
        if !taken {
            self.records.fetch_sub(count, Ordering::Relaxed);
        }
        taken
    }

    pub(super) fn give_back_record(&self, bytes: usize) {
        self.records.fetch_sub(1, Ordering::Relaxed);
        self.give_back(bytes);
    }

    pub(super) fn take(&self, bytes: usize) -> bool {
        bytes == 0 || take(&self.bytes, bytes, self.bytes_limit)
    }

    /// For the little that a record must remember: counted, never refused.
    pub(super) fn take_anyway(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn has(&self, records: usize, bytes: usize) -> bool {
        self.records().saturating_add(records) <= self.records_limit
            && self.bytes().saturating_add(bytes) <= self.bytes_limit
    }
}

fn take(counter: &AtomicUsize, count: usize, limit: usize) -> bool {
    let before = counter.fetch_add(count, Ordering::Relaxed);
    let fits = before.saturating_add(count) <= limit;
    if !fits {
        counter.fetch_sub(count, Ordering::Relaxed);
    }
    fits
}
