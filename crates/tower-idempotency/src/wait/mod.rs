//! Repeats that wait for the first run: event-driven, bounded for one key, in all and in bytes.
//!
//! Those who wait for one key are a [crowd](crowd::Crowd). It has one watch, however many they are. When the run that
//! is watched ends without an outcome they do not rush to the store: one at a time has the [turn](Turn) to ask, and the
//! others hear what it was told, or follow the run that it found or began.

mod crowd;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;
use tower_claim::store::{DoneRecord, Watched};
use tower_claim::{Attempt, Fingerprint, Keeper, Key, Moment, StoreError, Token};

use crate::inside::Here;
use crowd::{Crowd, News, Round, Watching};

/// How many may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitLimits {
    pub(crate) in_all: usize,
    pub(crate) per_key: usize,
    /// What the bodies of those that wait hold together.
    pub(crate) bytes: usize,
}

/// What a claim was told, that was not granted.
#[derive(Debug)]
pub(crate) struct Told {
    /// Whose payload asked.
    pub(crate) print: Fingerprint,
    /// When it was sent.
    pub(crate) sent: Moment,
    pub(crate) attempt: Result<Attempt, StoreError>,
}

/// The followers of all runs. Clones share them.
#[derive(Clone)]
pub(crate) struct Followers(Arc<Inner>);

struct Inner {
    watched: Watching,
    limits: WaitLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    crowds: HashMap<Key, Crowd>,
    followers: usize,
    bytes: usize,
}

impl Followers {
    /// Of the runs of this keeper, and of those that are inside of their transactions here.
    pub(crate) fn new(limits: WaitLimits, keeper: &Keeper, here: Option<Here>) -> Self {
        Self(Arc::new(Inner {
            watched: Watching {
                store: Arc::clone(keeper.store()),
                clock: Arc::clone(keeper.clock()),
                here,
            },
            limits,
            state: Mutex::default(),
        }))
    }

    pub(crate) fn limits(&self) -> WaitLimits {
        self.0.limits
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().followers
    }

    /// Follows the hold with this token, which is of a request with this fingerprint where that is known, keeping so
    /// many bytes in memory meanwhile; `None` when too many follow already. All followers of one key share one watch,
    /// which is polled by whoever is awake: no task is needed, and no connection is held beyond what the store's own
    /// looking takes.
    pub(crate) fn follow(
        &self,
        key: Key,
        token: Token,
        print: Option<Fingerprint>,
        bytes: usize,
    ) -> Option<Follower> {
        let mut state = self.0.lock();
        let held = state.bytes.saturating_add(bytes);
        if state.followers >= self.0.limits.in_all
            || held > self.0.limits.bytes
            || !state.has_room(key, &self.0.limits)
        {
            return None;
        }
        state.followers += 1;
        state.bytes = held;
        state.crowds.entry(key).or_default().followers += 1;
        drop(state);
        let mut follower = Follower {
            inner: Arc::clone(&self.0),
            key,
            print,
            bytes,
            token,
            round: None,
            heard: 0,
        };
        follower.follows(token);
        Some(follower)
    }
}

impl fmt::Debug for Followers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followers")
            .field("followers", &self.count())
            .field("limits", &self.0.limits)
            .finish()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_room(&self, key: Key, limits: &WaitLimits) -> bool {
        let of_key = self.crowds.get(&key).map_or(0, |crowd| crowd.followers);
        of_key < limits.per_key
    }

    /// One less; the crowd, where that was the last. A store's future may do anything when it is dropped: not under
    /// the lock.
    fn leave(&mut self, key: Key) -> Option<Crowd> {
        let crowd = self.crowds.get_mut(&key)?;
        crowd.followers -= 1;
        let is_empty = crowd.followers == 0;
        is_empty.then(|| self.crowds.remove(&key)).flatten()
    }
}

/// One of those who wait. Its place is given back when it is dropped; the last to leave takes the watch along.
pub(crate) struct Follower {
    inner: Arc<Inner>,
    key: Key,
    print: Option<Fingerprint>,
    bytes: usize,
    /// The hold it was told of.
    token: Token,
    /// What it waits for.
    round: Option<Round>,
    /// The last round whose end it knows.
    heard: u64,
}

/// What comes next for a follower.
pub(crate) enum Next {
    /// Its answer.
    Done(DoneRecord),
    /// The hold could not be watched.
    Failed(Arc<StoreError>),
    /// Another one with the same payload asked, and was told this.
    Told(Arc<Told>),
    /// It is to ask the store, for all.
    Turn(Turn),
}

/// The right to ask for a crowd. Dropped without a word, it is another's.
pub(crate) struct Turn {
    _guard: OwnedMutexGuard<()>,
}

impl Follower {
    /// Waits for the end of the hold; where that is no answer, for what another follower finds out; else it is this
    /// one's turn to ask.
    ///
    /// # Cancellation
    ///
    /// Called again it goes on.
    pub(crate) async fn next(&mut self) -> Next {
        loop {
            if let Some(round) = &self.round {
                let news = round.news.clone().await;
                let is_ours = self.print.is_some() && round.print() == self.print;
                let hold = (round.token, is_ours);
                self.heard = round.number;
                self.round = None;
                if let Some(next) = self.hear(news, hold) {
                    return next;
                }
            }
            let turn = self
                .of_crowd(|crowd| Some(crowd.turn()))
                .unwrap_or_default();
            let guard = turn.lock_owned().await;
            let heard = self.heard;
            self.round = self.of_crowd(|crowd| {
                let round = crowd.round.as_ref();
                round.filter(|round| round.number > heard).cloned()
            });
            if self.round.is_none() {
                return Next::Turn(Turn { _guard: guard });
            }
        }
    }

    fn of_crowd<T>(&self, look: impl FnOnce(&Crowd) -> Option<T>) -> Option<T> {
        self.inner.lock().crowds.get(&self.key).and_then(look)
    }

    fn hear(&self, news: News, (token, is_ours): (Token, bool)) -> Option<Next> {
        match news {
            News::Told(told) => (Some(told.print) == self.print).then_some(Next::Told(told)),
            // By another token it may be another payload's.
            News::Watched(Ok(Watched::Done(done)))
                if done.token == self.token || (is_ours && done.token == token) =>
            {
                Some(Next::Done(done))
            }
            News::Watched(Ok(_)) => None,
            News::Watched(Err(error)) => Some(Next::Failed(error)),
        }
    }

    /// Waits until something is known of the hold; the answer, where there is one.
    pub(crate) async fn over(mut self) -> Result<Option<DoneRecord>, Arc<StoreError>> {
        let Some(round) = self.round.take() else {
            return Ok(None);
        };
        let news = round.news.clone().await;
        match self.hear(news, (round.token, false)) {
            Some(Next::Done(done)) => Ok(Some(done)),
            Some(Next::Failed(seen)) => Err(seen),
            _ => Ok(None),
        }
    }

    /// The store says that this hold goes on: it is followed, by the whole crowd.
    pub(crate) fn follows(&mut self, token: Token) {
        let mut state = self.inner.lock();
        let Some(crowd) = state.crowds.get_mut(&self.key) else {
            return;
        };
        let watched = &self.inner.watched;
        let old = crowd.join(token, self.print, |is_again| {
            watched.watch((self.key, token), is_again)
        });
        self.round = crowd.round.clone();
        self.token = token;
        drop(state);
        drop(old);
    }

    /// Tells the crowd what this one was told.
    pub(crate) fn tell(&self, turn: Turn, told: Told) {
        let old = {
            let mut state = self.inner.lock();
            let crowd = state.crowds.get_mut(&self.key);
            crowd.and_then(|crowd| crowd.tell(told))
        };
        drop(old);
        drop(turn);
    }

    /// Waits for another key from now on: the work was led on there. `false` when too many wait for that.
    pub(crate) fn move_to(&mut self, key: Key) -> bool {
        if key == self.key {
            return true;
        }
        let mut state = self.inner.lock();
        if !state.has_room(key, &self.inner.limits) {
            return false;
        }
        state.crowds.entry(key).or_default().followers += 1;
        let gone = state.leave(self.key);
        drop(state);
        drop(gone);
        self.key = key;
        self.token = Token::ZERO;
        self.round = None;
        self.heard = 0;
        true
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let gone = {
            let mut state = self.inner.lock();
            state.followers -= 1;
            state.bytes -= self.bytes;
            state.leave(self.key)
        };
        drop(gone);
    }
}

#[cfg(test)]
mod tests;
