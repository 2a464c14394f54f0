//! Repeats that wait for the first run: event-driven, bounded for one key, in all and in bytes, one watch per key
//! and process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tower_claim::store::Watched;
use tower_claim::{DynClaimStore, Key, StoreError, Token};

type Seen = Arc<Result<Watched, StoreError>>;
type Watch = Shared<BoxFuture<'static, Seen>>;

/// How many may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitLimits {
    pub(crate) in_all: usize,
    pub(crate) per_key: usize,
    /// What the bodies of those that wait hold together.
    pub(crate) bytes: usize,
}

/// The followers of all runs. Clones share them.
#[derive(Clone)]
pub(crate) struct Followers {
    state: Arc<Mutex<State>>,
    limits: WaitLimits,
}

#[derive(Default)]
struct State {
    crowds: HashMap<Key, Crowd>,
    followers: usize,
    bytes: usize,
}

/// Those who wait for one key.
struct Crowd {
    /// The hold that is watched: the newest that anyone here was told of.
    token: Token,
    watch: Watch,
    followers: usize,
}

impl Followers {
    pub(crate) fn new(limits: WaitLimits) -> Self {
        Self {
            state: Arc::default(),
            limits,
        }
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        lock(&self.state).followers
    }

    /// Follows the hold with this token until it is over, keeping so many bytes in memory meanwhile; `None` when
    /// too many follow already. All followers of one key share one watch, which is polled by whoever is awake: no
    /// task is needed, and no connection is held beyond what the store's own looking takes.
    ///
    /// # Cancellation
    ///
    /// The last follower to leave takes the watch with it.
    pub(crate) fn follow(
        &self,
        store: &Arc<dyn DynClaimStore>,
        key: Key,
        token: Token,
        bytes: usize,
    ) -> Option<Following> {
        let watch = || {
            let store = Arc::clone(store);
            let watch = async move { Arc::new(store.dyn_watch(key, token).await) };
            watch.boxed().shared()
        };
        let mut state = lock(&self.state);
        let of_key = state.crowds.get(&key).map_or(0, |crowd| crowd.followers);
        let held = state.bytes.saturating_add(bytes);
        if state.followers >= self.limits.in_all
            || of_key >= self.limits.per_key
            || held > self.limits.bytes
        {
            return None;
        }
        state.followers += 1;
        state.bytes = held;
        let crowd = state.crowds.entry(key).or_insert_with(|| Crowd {
            token,
            watch: watch(),
            followers: 0,
        });
        crowd.followers += 1;
        // Over, and not everyone has left yet. The hold goes on all the same, or none would follow it: what was
        // seen then tells nothing of now, and who reads it over and over would never look again. A hold before
        // the one that is watched is over: who was told of it late waits along, and asks again.
        let is_over = crowd.watch.peek().is_some();
        let old = (token > crowd.token || is_over).then(|| {
            crowd.token = crowd.token.max(token);
            std::mem::replace(&mut crowd.watch, watch())
        });
        let following = Following {
            watch: crowd.watch.clone(),
            seat: Seat {
                state: Arc::clone(&self.state),
                key,
                bytes,
            },
        };
        // A store's future may do anything when it is dropped: not under the lock.
        drop(state);
        drop(old);
        Some(following)
    }
}

impl fmt::Debug for Followers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followers")
            .field("followers", &self.count())
            .field("limits", &self.limits)
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
    key: Key,
    bytes: usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.followers -= 1;
        state.bytes -= self.bytes;
        let last = match state.crowds.get_mut(&self.key) {
            Some(crowd) => {
                crowd.followers -= 1;
                crowd.followers == 0
            }
            None => false,
        };
        let gone = last.then(|| state.crowds.remove(&self.key));
        // See `follow`.
        drop(state);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use tower_claim::testing::{FaultStore, Operation};
    use tower_claim::{MemoryStore, Namespace, Use};

    use super::*;

    fn key(part: &str) -> Key {
        let key = Key::builder(Use::Idempotency, &Namespace::default());
        key.part(part).build()
    }

    fn limits(in_all: usize, per_key: usize, bytes: usize) -> Followers {
        Followers::new(WaitLimits {
            in_all,
            per_key,
            bytes,
        })
    }

    fn counts(followers: &Followers) -> (usize, usize, usize) {
        let state = lock(&followers.state);
        (state.crowds.len(), state.followers, state.bytes)
    }

    #[test]
    fn who_comes_after_a_watch_is_over_looks_again() {
        let store = FaultStore::new(MemoryStore::new());
        let watches = || store.faults().calls().of(Operation::Watch);
        let of: Arc<dyn DynClaimStore> = Arc::new(store.clone());
        let followers = limits(9, 9, 9);
        let follow = || followers.follow(&of, key("k"), Token::ZERO, 0).unwrap();
        let (first, second) = (follow(), follow());
        assert!(first.over().now_or_never().is_some());
        let late = follow();
        assert!(late.over().now_or_never().is_some());
        assert_eq!(watches(), 2);
        assert!(second.over().now_or_never().is_some());
        assert_eq!(watches(), 2, "it was there for the first");
        assert_eq!(counts(&followers), (0, 0, 0));
    }

    #[test]
    fn the_last_follower_takes_the_watch_along() {
        let store: Arc<dyn DynClaimStore> = Arc::new(MemoryStore::new());
        let followers = limits(2, 9, 9);
        let follow = |name| followers.follow(&store, key(name), Token::ZERO, 1);
        let (first, second) = (follow("k").unwrap(), follow("k").unwrap());
        assert_eq!(counts(&followers), (1, 2, 2));
        assert!(follow("other").is_none(), "full");
        drop(first);
        assert_eq!(counts(&followers), (1, 1, 1));
        assert!(second.over().now_or_never().is_some(), "nobody holds it");
        assert_eq!(counts(&followers), (0, 0, 0));
    }

    #[test]
    fn one_key_does_not_take_the_places_of_all() {
        let store: Arc<dyn DynClaimStore> = Arc::new(MemoryStore::new());
        let followers = limits(9, 2, 9);
        let follow = |name| followers.follow(&store, key(name), Token::ZERO, 0);
        let crowd = (follow("hot"), follow("hot"));
        assert!(crowd.0.is_some() && crowd.1.is_some());
        assert!(follow("hot").is_none());
        assert!(follow("other").is_some());
        drop(crowd);
        assert!(follow("hot").is_some());
    }

    #[test]
    fn the_bodies_of_those_that_wait_are_bounded_together() {
        let store: Arc<dyn DynClaimStore> = Arc::new(MemoryStore::new());
        let followers = limits(9, 9, 100);
        let follow = |name, bytes| followers.follow(&store, key(name), Token::ZERO, bytes);
        let large = follow("a", 99).unwrap();
        assert!(follow("b", 2).is_none());
        let small = follow("b", 1).unwrap();
        assert!(follow("c", usize::MAX).is_none(), "no overflow");
        drop(large);
        assert!(follow("b", 99).is_some());
        drop(small);
        assert_eq!(counts(&followers), (0, 0, 0));
    }

    #[test]
    fn one_key_has_one_watch_and_it_is_of_the_newest_hold() {
        let store = FaultStore::new(MemoryStore::new());
        let watches = || store.faults().calls().of(Operation::Watch);
        let of: Arc<dyn DynClaimStore> = Arc::new(store.clone());
        let followers = limits(9, 9, 9);
        let at = |n| Token::new(n).unwrap();
        let follow = |n| followers.follow(&of, key("k"), at(n), 0).unwrap();
        let (old, new, late) = (follow(1), follow(2), follow(1));
        assert_eq!(counts(&followers), (1, 3, 0));
        assert!(new.over().now_or_never().is_some());
        assert!(late.over().now_or_never().is_some());
        assert_eq!(watches(), 1, "told late of an older hold: the same watch");
        assert!(old.over().now_or_never().is_some());
    }
}
