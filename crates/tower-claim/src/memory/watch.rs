//! Waiting for the end of a hold, without a lost wake-up.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::Notify;

use super::inner::Inner;
use super::shard::{Spread, Watchers};
use crate::clock::Moment;
use crate::record::Watching;
use crate::store::{StoreTime, Watched};
use crate::{Key, Token};

pub(super) async fn watch(inner: &Arc<Inner>, key: Key, token: Token) -> Watched {
    if let Watching::Over(watched) = inner.watching(&key, token) {
        return watched;
    }
    let seat = Seat::take(inner, key);
    loop {
        // Listens first and looks then: what happens in between wakes. (`notify_waiters` reaches every
        // future that was made before it, polled or not.)
        let called = pin!(seat.notify.notified());
        let lapse = match inner.watching(&key, token) {
            Watching::Over(watched) => return watched,
            Watching::Until(lapse) => lapse,
        };
        select(called, inner.clock.sleep_until(moment(lapse))).await;
    }
}

fn moment(time: StoreTime) -> Moment {
    Moment::since_start(Duration::from_micros(time.as_micros()))
}

/// A place among those who watch a key. The last to leave clears the table.
struct Seat {
    inner: Arc<Inner>,
    key: Key,
    spread: Spread,
    notify: Arc<Notify>,
}

impl Seat {
    fn take(inner: &Arc<Inner>, key: Key) -> Self {
        let spread = inner.spread(&key);
        let mut shard = inner.lock(spread);
        let watchers = shard.watchers.entry(key).or_insert_with(|| Watchers {
            notify: Arc::new(Notify::new()),
            seats: 0,
        });
        watchers.seats += 1;
        let notify = Arc::clone(&watchers.notify);
        drop(shard);
        Self {
            inner: Arc::clone(inner),
            key,
            spread,
            notify,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut shard = self.inner.lock(self.spread);
        if let Some(watchers) = shard.watchers.get_mut(&self.key) {
            watchers.seats -= 1;
            if watchers.seats == 0 {
                shard.watchers.remove(&self.key);
            }
        }
        if shard.watchers.is_empty() {
            // A table keeps the size of its busiest hour; an empty one costs nothing.
            shard.watchers = hashbrown::HashMap::default();
        }
    }
}
