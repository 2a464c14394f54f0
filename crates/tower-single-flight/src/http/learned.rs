//! What answers have taught: which keys cannot be shared, and which need more request headers in them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderName;
use tower_claim::Moment;

/// Most keys that are remembered. A full table learns nothing until something has run out.
const MOST_KEYS: usize = 10_000;

/// How long a full table waits before it looks again for what has run out: looking costs a scan.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(super) enum Lesson {
    /// Answers are for one caller: do not queue, go at once.
    Alone,
    /// Answers depend on these request headers: put them into the key.
    Vary(Arc<[HeaderName]>),
}

/// Keys are kept as keyed 64-bit hashes. A collision is harmless: a request goes alone, or is keyed finer
/// than it need be.
#[derive(Debug)]
pub(super) struct Learned {
    keep: Duration,
    hasher: RandomState,
    /// Read before the lock is taken: a layer that has learned nothing pays nothing.
    len: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    lessons: HashMap<u64, (Lesson, Moment)>,
    swept: Moment,
}

impl Learned {
    pub(super) fn new(keep: Duration) -> Self {
        Self {
            keep,
            hasher: RandomState::new(),
            len: AtomicUsize::new(0),
            table: Mutex::default(),
        }
    }

    pub(super) fn recall(&self, key: &[u8], now: impl FnOnce() -> Moment) -> Option<Lesson> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let (lesson, until) = table.lessons.get(&hash)?;
        if now() < *until {
            return Some(lesson.clone());
        }
        table.lessons.remove(&hash);
        self.len.store(table.lessons.len(), Ordering::Release);
        None
    }

    pub(super) fn learn(&self, key: &[u8], lesson: Lesson, now: Moment) {
        if self.keep.is_zero() {
            return;
        }
        let hash = self.hasher.hash_one(key);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *table;
        let full = table.lessons.len() >= MOST_KEYS && !table.lessons.contains_key(&hash);
        if full && now.saturating_since(table.swept) >= SWEEP_PAUSE {
            table.swept = now;
            table.lessons.retain(|_, (_, until)| now < *until);
        }
        if !full || table.lessons.len() < MOST_KEYS {
            table.lessons.insert(hash, (lesson, now + self.keep));
        }
        self.len.store(table.lessons.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_secs(10);

    fn at(secs: u64) -> Moment {
        Moment::since_start(Duration::from_secs(secs))
    }

    #[test]
    fn a_lesson_is_forgotten_after_its_time() {
        let learned = Learned::new(KEEP);
        learned.learn(b"a", Lesson::Alone, at(0));
        assert!(learned.recall(b"a", || at(9)).is_some());
        assert!(learned.recall(b"b", || at(9)).is_none());
        assert!(learned.recall(b"a", || at(10)).is_none());
        assert_eq!(learned.len.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_table_never_grows_over_its_bound() {
        let learned = Learned::new(KEEP);
        for key in 0..MOST_KEYS as u64 + 500 {
            learned.learn(&key.to_le_bytes(), Lesson::Alone, at(1));
        }
        assert_eq!(learned.len.load(Ordering::Relaxed), MOST_KEYS);
        learned.learn(b"later", Lesson::Alone, at(11));
        assert_eq!(learned.len.load(Ordering::Relaxed), 1);
    }
}
