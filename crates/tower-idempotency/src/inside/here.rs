//! The runs of this layer value that are inside their transactions, where no connection but their own sees them.
//!
//! Bounded by their transactions: each holds a connection.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tower_claim::store::Busy;
use tower_claim::{Fingerprint, Key, Token};

/// Who runs here. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Here(Arc<Mutex<Runs>>);

#[derive(Default)]
struct Runs {
    next: u64,
    by_key: HashMap<Key, Run>,
}

struct Run {
    number: u64,
    token: Token,
    print: Fingerprint,
    /// Closed when it is over.
    over: Arc<Semaphore>,
}

impl Here {
    /// A run was granted its key. One that was granted it before has ended: else this one would not have been.
    pub(super) fn enter(&self, key: Key, token: Token, print: Fingerprint) -> Stay {
        let over = Arc::new(Semaphore::new(0));
        let mut runs = self.lock();
        let number = runs.next;
        runs.next += 1;
        let run = Run {
            number,
            token,
            print,
            over: Arc::clone(&over),
        };
        runs.by_key.insert(key, run);
        drop(runs);
        Stay {
            here: self.clone(),
            key,
            number,
            over,
        }
    }

    /// What a repeat of a run meets, without a look at the database.
    pub(crate) fn meet(&self, key: Key, print: Fingerprint) -> Option<Busy> {
        self.lock().by_key.get(&key).map(|run| Busy {
            token: run.token,
            since: std::time::Duration::ZERO,
            expires_in: std::time::Duration::ZERO,
            same_fingerprint: run.print == print,
            label: "".into(),
        })
    }

    /// Resolves when the run is over that has this key now; `None` where none has.
    pub(crate) fn end_of(&self, key: Key) -> Option<BoxFuture<'static, ()>> {
        let over = Arc::clone(&self.lock().by_key.get(&key)?.over);
        Some(Box::pin(async move {
            let _closed = over.acquire_owned().await;
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Here")
            .field("runs", &self.lock().by_key.len())
            .finish()
    }
}

/// A run that is here. Left at the latest when it is dropped.
#[derive(Debug)]
pub(crate) struct Stay {
    here: Here,
    key: Key,
    number: u64,
    over: Arc<Semaphore>,
}

impl Stay {
    /// Its transaction has ended: whoever repeats it from now on asks the database, as those do that have waited.
    pub(crate) fn leave(&self) {
        let mut runs = self.here.lock();
        // Another one may be here by now: the transaction ended before this was told.
        if runs
            .by_key
            .get(&self.key)
            .is_some_and(|run| run.number == self.number)
        {
            runs.by_key.remove(&self.key);
        }
        drop(runs);
        self.over.close();
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tower_claim::{Namespace, Use};

    use super::*;

    fn key() -> Key {
        Key::builder(Use::Idempotency, &Namespace::default()).build()
    }

    fn print(of: u8) -> Fingerprint {
        Fingerprint::builder().part(Some(&[of])).build()
    }

    #[test]
    fn a_run_is_met_and_waited_for_until_it_leaves() {
        let here = Here::default();
        assert!(here.meet(key(), print(1)).is_none());
        assert!(here.end_of(key()).is_none());
        let stay = here.enter(key(), Token::ZERO, print(1));
        assert!(here.meet(key(), print(1)).unwrap().same_fingerprint);
        assert!(!here.meet(key(), print(2)).unwrap().same_fingerprint);
        let mut end = here.end_of(key()).unwrap();
        assert!((&mut end).now_or_never().is_none());
        stay.leave();
        assert!(end.now_or_never().is_some());
        assert!(here.meet(key(), print(1)).is_none());
    }

    #[test]
    fn who_leaves_late_takes_no_other_along() {
        let here = Here::default();
        let late = here.enter(key(), Token::ZERO, print(1));
        let mut late_end = here.end_of(key()).unwrap();
        let stay = here.enter(key(), Token::ZERO, print(2));
        let mut end = here.end_of(key()).unwrap();
        drop(late);
        assert!((&mut late_end).now_or_never().is_some());
        assert!((&mut end).now_or_never().is_none());
        assert!(here.meet(key(), print(2)).unwrap().same_fingerprint);
        drop(stay);
        assert!(end.now_or_never().is_some());
        assert!(here.lock().by_key.is_empty());
    }
}
