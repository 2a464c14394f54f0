//! Repeats that wait for the first run: event-driven, bounded in number, one watch per key and process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tower_claim::store::Watched;
use tower_claim::{DynClaimStore, Key, StoreError, Token};

type Seen = Arc<Result<Watched, StoreError>>;
type Watch = Shared<BoxFuture<'static, Seen>>;

/// The followers of all runs. Clones share them.
#[derive(Clone)]
pub(crate) struct Followers {
    state: Arc<Mutex<State>>,
    limit: usize,
}

#[derive(Default)]
struct State {
    watches: HashMap<(Key, Token), (Watch, usize)>,
    followers: usize,
}

impl Followers {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            state: Arc::default(),
            limit,
        }
    }

    /// Follows the hold with this token until it is over; `None` when too many follow already. All
    /// followers of one hold share one watch, which is polled by whoever is awake: no task is needed.
    ///
    /// # Cancellation
    ///
    /// The last follower to leave takes the watch with it.
    pub(crate) fn follow(
        &self,
        store: &Arc<dyn DynClaimStore>,
        key: Key,
        token: Token,
    ) -> Option<Following> {
        let mut state = lock(&self.state);
        if state.followers >= self.limit {
            return None;
        }
        state.followers += 1;
        let watch = || {
            let store = Arc::clone(store);
            let watch = async move { Arc::new(store.dyn_watch(key, token).await) };
            watch.boxed().shared()
        };
        let (watching, count) = state
            .watches
            .entry((key, token))
            .or_insert_with(|| (watch(), 0));
        if watching.peek().is_some() {
            // Over, and not everyone has left yet. The hold goes on all the same, or none would follow it: what
            // was seen then tells nothing of now, and who reads it over and over would never look again.
            *watching = watch();
        }
        *count += 1;
        Some(Following {
            watch: watching.clone(),
            seat: Seat {
                state: Arc::clone(&self.state),
                of: (key, token),
            },
        })
    }
}

impl fmt::Debug for Followers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followers")
            .field("followers", &lock(&self.state).followers)
            .field("limit", &self.limit)
            .finish()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One follower.
pub(crate) struct Following {
    watch: Watch,
    seat: Seat,
}

impl Following {
    /// What became of the hold.
    pub(crate) async fn over(self) -> Seen {
        let Self { watch, seat } = self;
        let seen = watch.await;
        drop(seat);
        seen
    }
}

/// A follower's place. Given back on every way out.
struct Seat {
    state: Arc<Mutex<State>>,
    of: (Key, Token),
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.followers -= 1;
        let last = match state.watches.get_mut(&self.of) {
            Some((_, count)) => {
                *count -= 1;
                *count == 0
            }
            None => false,
        };
        let gone = last.then(|| state.watches.remove(&self.of));
        // A store's future may do anything when it is dropped: not under the lock.
        drop(state);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use tower_claim::testing::{FaultStore, Operation};
    use tower_claim::{MemoryStore, Namespace, Use};

    use super::*;

    #[test]
    fn who_comes_after_a_watch_is_over_looks_again() {
        let store = FaultStore::new(MemoryStore::new());
        let watches = || store.faults().calls().of(Operation::Watch);
        let of: Arc<dyn DynClaimStore> = Arc::new(store.clone());
        let key = Key::builder(Use::Idempotency, &Namespace::default()).build();
        let followers = Followers::new(9);
        let follow = || followers.follow(&of, key, Token::ZERO).unwrap();
        let (first, second) = (follow(), follow());
        assert!(first.over().now_or_never().is_some());
        let late = follow();
        assert!(late.over().now_or_never().is_some());
        assert_eq!(watches(), 2);
        assert!(second.over().now_or_never().is_some());
        assert_eq!(watches(), 2, "it was there for the first");
        assert!(lock(&followers.state).watches.is_empty());
    }

    #[test]
    fn the_last_follower_takes_the_watch_along() {
        let store: Arc<dyn DynClaimStore> = Arc::new(MemoryStore::new());
        let key = Key::builder(Use::Idempotency, &Namespace::default()).build();
        let followers = Followers::new(2);
        let counts = |f: &Followers| {
            let state = lock(&f.state);
            (state.watches.len(), state.followers)
        };
        let first = followers.follow(&store, key, Token::ZERO).unwrap();
        let second = followers.follow(&store, key, Token::ZERO).unwrap();
        assert_eq!(counts(&followers), (1, 2));
        assert!(followers.follow(&store, key, Token::MAX).is_none(), "full");
        drop(first);
        assert_eq!(counts(&followers), (1, 1));
        assert!(second.over().now_or_never().is_some(), "nobody holds it");
        assert_eq!(counts(&followers), (0, 0));
    }
}
