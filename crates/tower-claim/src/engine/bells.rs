//! Waiting for the end of a hold at an engine.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::Notify;

use crate::record::Watching;
use crate::store::{StoreTime, Watched};
use crate::{Key, StoreError, Token};

/// One bell for each hold that somebody waits for.
///
/// However many wait for one hold, one of them looks into the engine: the first; when it leaves, the next.
/// It looks when the bell is rung (a notification arrived), when the hold would lapse, and every poll step,
/// since a notification may be lost. All who wait hear what it saw.
#[derive(Default)]
pub struct Bells {
    bells: Mutex<Hung>,
}

/// By key first: a notification names a key, and must not walk over all that is watched.
type Hung = HashMap<Key, HashMap<Token, Bell>>;

#[derive(Default)]
struct Bell {
    waiting: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    rung: Notify,
    /// Held by who looks; tells the others what it saw.
    seen: tokio::sync::Mutex<Option<Watched>>,
}

impl Bells {
    /// Nobody waits yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Something happened to this key.
    pub fn ring(&self, key: &Key) {
        for bell in self.lock().get(key).into_iter().flat_map(HashMap::values) {
            bell.shared.rung.notify_one();
        }
    }

    /// Notifications may have been missed: whoever looks, looks again.
    pub fn ring_all(&self) {
        for bell in self.lock().values().flat_map(HashMap::values) {
            bell.shared.rung.notify_one();
        }
    }

    /// Holds that somebody waits for.
    pub fn watched(&self) -> usize {
        self.lock().values().map(HashMap::len).sum()
    }

    /// Waits until the hold is over. `look` asks the engine; `now` is the engine's time, as well as it is
    /// known.
    ///
    /// # Errors
    ///
    /// That of `look`, once it has failed twice in a row, a poll step apart; at once where it
    /// [is not retryable](StoreError::is_retryable).
    ///
    /// # Cancellation
    ///
    /// Another who waits for the hold looks from then on.
    pub async fn watch<F>(
        &self,
        key: Key,
        token: Token,
        poll: Duration,
        now: impl Fn() -> StoreTime,
        look: impl Fn() -> F,
    ) -> Result<Watched, StoreError>
    where
        F: Future<Output = Result<Watching, StoreError>>,
    {
        let seat = Seat::take(self, (key, token));
        let mut seen = seat.shared.seen.lock().await;
        if let Some(watched) = &*seen {
            return Ok(watched.clone());
        }
        let mut failed = false;
        loop {
            // A bell that is rung while we look is not lost: its permit waits.
            let pause = match look().await {
                Ok(Watching::Over(watched)) => {
                    *seen = Some(watched.clone());
                    take_down(&mut self.lock(), (key, token));
                    return Ok(watched);
                }
                Ok(Watching::Until(lapse)) => {
                    failed = false;
                    // One microsecond past it: engines judge "lapsed" by their own, finer or coarser, clock.
                    let rest = lapse.saturating_since(now()) + Duration::from_micros(1);
                    poll.min(rest)
                }
                Err(error) if failed || !error.is_retryable() => return Err(error),
                Err(_) => {
                    failed = true;
                    poll
                }
            };
            let sleep = pin!(tokio::time::sleep(pause));
            select(pin!(seat.shared.rung.notified()), sleep).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Hung> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Bells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bells")
            .field("watched", &self.watched())
            .finish_non_exhaustive()
    }
}

fn take_down(all: &mut Hung, (key, token): (Key, Token)) {
    if let Some(bells) = all.get_mut(&key) {
        bells.remove(&token);
        if bells.is_empty() {
            all.remove(&key);
        }
    }
    if all.is_empty() {
        // A table keeps the size of its busiest hour; an empty one costs nothing.
        *all = HashMap::new();
    }
}

/// A place among those who wait for a hold. The last to leave takes the bell down.
struct Seat<'a> {
    bells: &'a Bells,
    hold: (Key, Token),
    shared: Arc<Shared>,
}

impl<'a> Seat<'a> {
    fn take(bells: &'a Bells, hold: (Key, Token)) -> Self {
        let mut all = bells.lock();
        let (key, token) = hold;
        let bell = all.entry(key).or_default().entry(token).or_default();
        bell.waiting += 1;
        let shared = Arc::clone(&bell.shared);
        Self {
            bells,
            hold,
            shared,
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut all = self.bells.lock();
        let (key, token) = self.hold;
        let bell = all.get_mut(&key).and_then(|bells| bells.get_mut(&token));
        let Some(bell) = bell else {
            return;
        };
        // The hold is over for this seat's bell; the one that hangs there now may be of newcomers.
        if !Arc::ptr_eq(&bell.shared, &self.shared) {
            return;
        }
        bell.waiting -= 1;
        if bell.waiting == 0 {
            take_down(&mut all, self.hold);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const KEY: Key = Key::from_bytes([7; 32]);
    const TOKEN: Token = Token::ZERO;
    const MINUTE: Duration = Duration::from_secs(60);

    /// An engine: how often it was asked, and whether the hold is over.
    #[derive(Default)]
    struct Engine {
        asked: AtomicU32,
        over: std::sync::atomic::AtomicBool,
        down: AtomicU32,
    }

    impl Engine {
        async fn watch(&self, bells: &Bells) -> Result<Watched, StoreError> {
            let now = || StoreTime::from_micros(0);
            let look = || async {
                self.asked.fetch_add(1, Ordering::Relaxed);
                if self.down.load(Ordering::Relaxed) > 0 {
                    self.down.fetch_sub(1, Ordering::Relaxed);
                    return Err(StoreError::unavailable("down"));
                }
                Ok(if self.over.load(Ordering::Relaxed) {
                    Watching::Over(Watched::Ended)
                } else {
                    Watching::Until(StoreTime::NEVER)
                })
            };
            bells.watch(KEY, TOKEN, MINUTE, now, look).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_who_wait_one_looks_and_all_hear() {
        let (bells, engine) = (Bells::new(), Engine::default());
        let all = join_all((0..1000).map(|_| engine.watch(&bells)));
        let end = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            engine.over.store(true, Ordering::Relaxed);
            bells.ring(&KEY);
        };
        let (seen, ()) = tokio::join!(all, end);
        assert!(
            seen.iter()
                .all(|seen| *seen.as_ref().unwrap() == Watched::Ended)
        );
        assert_eq!(engine.asked.load(Ordering::Relaxed), 2);
        assert_eq!(bells.watched(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_rings_for_each_of_its_holds_and_for_no_other_key() {
        let bells = Bells::new();
        let looks = [const { AtomicU32::new(0) }; 3];
        let other = Key::from_bytes([8; 32]);
        let next = Token::new(1).unwrap();
        let holds = [(KEY, TOKEN), (KEY, next), (other, TOKEN)];
        let watching = holds.iter().zip(&looks).map(|((key, token), looked)| {
            let look = || async {
                looked.fetch_add(1, Ordering::Relaxed);
                Ok(Watching::Until(StoreTime::NEVER))
            };
            bells.watch(*key, *token, MINUTE, || StoreTime::from_micros(0), look)
        });
        let all = tokio::time::timeout(MINUTE / 2, join_all(watching));
        let ring = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(bells.watched(), 3);
            bells.ring(&KEY);
        };
        let (over, ()) = tokio::join!(all, ring);
        assert!(over.is_err(), "none of the holds is over");
        let looked = looks.each_ref().map(|looks| looks.load(Ordering::Relaxed));
        assert_eq!(looked, [2, 2, 1]);
        assert_eq!(bells.watched(), 0, "all have left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_bell_that_is_not_rung_costs_one_poll_step() {
        let (bells, engine) = (Bells::new(), Engine::default());
        let start = tokio::time::Instant::now();
        let end = async { engine.over.store(true, Ordering::Relaxed) };
        let (seen, ()) = tokio::join!(engine.watch(&bells), end);
        assert_eq!(seen.unwrap(), Watched::Ended);
        assert!(start.elapsed() <= MINUTE + Duration::from_millis(2));
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_one_who_looks_leaves_the_next_one_looks() {
        let (bells, engine) = (Bells::new(), Engine::default());
        let mut first = Box::pin(engine.watch(&bells));
        let second = engine.watch(&bells);
        let once = std::future::poll_fn(|cx| std::task::Poll::Ready(first.as_mut().poll(cx)));
        assert!(once.await.is_pending());
        let end = async {
            drop(first);
            engine.over.store(true, Ordering::Relaxed);
            bells.ring_all();
        };
        let (seen, ()) = tokio::join!(second, end);
        assert_eq!(seen.unwrap(), Watched::Ended);
        assert_eq!(bells.watched(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_failed_look_is_looked_over_two_are_told() {
        let (bells, engine) = (Bells::new(), Engine::default());
        engine.over.store(true, Ordering::Relaxed);
        engine.down.store(1, Ordering::Relaxed);
        assert_eq!(engine.watch(&bells).await.unwrap(), Watched::Ended);
        engine.down.store(2, Ordering::Relaxed);
        assert!(engine.watch(&bells).await.is_err());
        assert_eq!(bells.watched(), 0);
    }
}
