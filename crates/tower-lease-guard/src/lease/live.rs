//! The leases of one layer that are not over, for a shutdown that waits for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug, Default)]
struct State {
    live: usize,
    closed: bool,
}

/// Counts the leases of one layer value.
#[derive(Debug, Clone, Default)]
pub(super) struct LiveLeases(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    none: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveLeases {
    /// One more; `None` after [`close`](Self::close).
    pub(super) fn begin(&self) -> Option<Live> {
        let mut state = self.0.lock();
        if state.closed {
            return None;
        }
        state.live += 1;
        Some(Live(self.0.clone()))
    }

    /// No lease begins any more.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
    }

    /// Ready when no lease is left.
    pub(super) async fn none_left(&self) {
        loop {
            let mut none = std::pin::pin!(self.0.none.notified());
            none.as_mut().enable();
            if self.0.lock().live == 0 {
                return;
            }
            none.await;
        }
    }
}

/// A lease, or the attempt at one.
#[derive(Debug)]
pub(super) struct Live(Arc<Shared>);

impl Drop for Live {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.live -= 1;
        if state.live == 0 {
            self.0.none.notify_waiters();
        }
    }
}
