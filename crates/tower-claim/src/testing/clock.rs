//! A clock that stands still until it is told to move.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::{Clock, Moment};

/// A [`Clock`] that stands still until a test moves it. Clones share one time.
///
/// Unix time begins at 1,700,000,000 s (November 2023) and moves with the clock.
///
/// ```
/// use std::time::Duration;
/// use tower_claim::{Clock, testing::ManualClock};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let clock = ManualClock::new();
/// let sleep = clock.sleep_until(clock.now() + Duration::from_secs(30));
/// clock.advance(Duration::from_secs(30));
/// sleep.await;
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ManualClock {
    state: Arc<Mutex<State>>,
}

struct State {
    now: Moment,
    unix: Duration,
    /// By instant, then by order of arrival: the order in which they are woken.
    sleepers: BTreeMap<(Moment, u64), Waker>,
    next_id: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            // Not zero: "one minute ago" must have an answer.
            now: Moment::since_start(Duration::from_secs(3600)),
            unix: Duration::from_secs(1_700_000_000),
            sleepers: BTreeMap::new(),
            next_id: 0,
        }
    }
}

impl ManualClock {
    /// A clock of its own time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the time on in one step, and wakes the sleepers whose instant has come, in the order of their
    /// instants. The woken run when their executor lets them: a sleeper that sleeps again counts from the
    /// new time, so step by step where each beat matters.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        state.now = state.now + by;
        state.unix = state.unix.saturating_add(by);
        let now = state.now;
        let later = state.sleepers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut state.sleepers, later);
        // A waker may run its task on this very thread, which then asks this clock.
        drop(state);
        due.into_values().for_each(Waker::wake);
    }

    /// Wall time jumps ahead, as when an operator sets the clock. [`Clock::now`] does not move.
    pub fn jump_unix_ahead(&self, by: Duration) {
        let mut state = self.lock();
        state.unix = state.unix.saturating_add(by);
    }

    /// Wall time jumps back (not before the epoch). [`Clock::now`] does not move.
    pub fn jump_unix_back(&self, by: Duration) {
        let mut state = self.lock();
        state.unix = state.unix.saturating_sub(by);
    }

    /// How many sleeps are pending: a test waits for this before it advances past somebody's timer.
    pub fn sleepers(&self) -> usize {
        self.lock().sleepers.len()
    }

    /// The instant of the next pending sleep.
    pub fn next_wake(&self) -> Option<Moment> {
        self.lock().sleepers.keys().next().map(|(at, _)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        self.lock().now
    }

    fn unix_time(&self) -> Duration {
        self.lock().unix
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        Box::pin(Sleep {
            clock: self.clone(),
            at,
            id: None,
        })
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("ManualClock")
            .field("now", &state.now)
            .field("unix", &state.unix)
            .field("sleepers", &state.sleepers.len())
            .finish()
    }
}

struct Sleep {
    clock: ManualClock,
    at: Moment,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut state = clock.lock();
        if state.now >= self.at {
            return Poll::Ready(());
        }
        let id = *self.id.get_or_insert_with(|| {
            state.next_id += 1;
            state.next_id
        });
        state.sleepers.insert((self.at, id), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.clock.lock().sleepers.remove(&(self.at, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    #[derive(Clone)]
    struct Named(u8, Arc<Mutex<Vec<u8>>>);

    impl Wake for Named {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn sleepers_are_woken_in_the_order_of_their_instants() {
        let clock = ManualClock::new();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut sleeps: Vec<_> = [(1u8, 30), (2, 10), (3, 20), (4, 10), (5, 31)]
            .into_iter()
            .map(|(name, secs)| {
                let mut sleep = clock.sleep_until(clock.now() + Duration::from_secs(secs));
                let waker = Waker::from(Arc::new(Named(name, order.clone())));
                assert!(
                    sleep
                        .as_mut()
                        .poll(&mut Context::from_waker(&waker))
                        .is_pending()
                );
                sleep
            })
            .collect();
        clock.advance(Duration::from_secs(30));
        assert_eq!(*order.lock().unwrap(), [2, 4, 3, 1]);
        assert_eq!(clock.sleepers(), 1, "the fifth sleeps on");
        let waker = Waker::noop();
        assert!(
            sleeps[0]
                .as_mut()
                .poll(&mut Context::from_waker(waker))
                .is_ready()
        );
        assert!(
            sleeps[4]
                .as_mut()
                .poll(&mut Context::from_waker(waker))
                .is_pending()
        );
    }

    #[test]
    fn a_dropped_sleep_leaves_nothing_behind() {
        let clock = ManualClock::new();
        let mut sleep = clock.sleep_until(clock.now() + Duration::from_secs(1));
        assert!(
            sleep
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        assert_eq!(clock.sleepers(), 1);
        drop(sleep);
        assert_eq!(clock.sleepers(), 0);
    }

    #[test]
    fn wall_time_jumps_alone() {
        let clock = ManualClock::new();
        let (now, unix) = (clock.now(), clock.unix_time());
        clock.jump_unix_back(Duration::from_secs(10));
        clock.jump_unix_ahead(Duration::from_secs(4));
        assert_eq!(clock.now(), now);
        assert_eq!(clock.unix_time(), unix - Duration::from_secs(6));
        clock.clone().advance(Duration::from_secs(6));
        assert_eq!(clock.unix_time(), unix, "clones share one time");
    }
}
