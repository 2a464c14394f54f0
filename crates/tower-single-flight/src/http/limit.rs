//! How many followers may make their own call at the same time after a flight could not be shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A place is taken or it is not: a queue would hand places to followers that are not polled.
#[derive(Debug)]
pub(super) struct Limit {
    taken: AtomicUsize,
    most: usize,
}

impl Limit {
    pub(super) fn new(most: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            most,
        }
    }

    pub(super) fn try_take(self: &Arc<Self>) -> Option<Permit> {
        let one_more = |taken| (taken < self.most).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .ok()?;
        Some(Permit(Arc::clone(self)))
    }
}

pub(super) struct Permit(Arc<Limit>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
