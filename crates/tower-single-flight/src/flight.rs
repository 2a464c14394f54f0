//! One shared call.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::future::BoxFuture;
use tower_claim::Moment;

use crate::caller::Caller;
use crate::error::FlightError;
use crate::state::{Left, State};
use crate::table::Keyed;
use crate::tasks::Berth;

pub(crate) type CallFuture<O, E> = BoxFuture<'static, Result<O, E>>;
pub(crate) type Outcome<T, E> = Result<T, FlightError<E>>;
type FlightState<T, E, O> = State<CallFuture<O, E>, O, Outcome<T, E>, Berth>;
pub(crate) type FlightLeft<E, O> = Left<CallFuture<O, E>, O, Berth>;

pub(crate) struct Flight<K, T, E, O> {
    pub(crate) hash: u64,
    key: K,
    pub(crate) started: Moment,
    state: Mutex<FlightState<T, E, O>>,
    /// How many leaders were elected for this key since its first call began; shared by the flights of
    /// one line. Made when the first is elected.
    pub(crate) elected: OnceLock<Arc<AtomicU32>>,
    pub(crate) leader: Caller,
}

impl<K, T, E, O> Flight<K, T, E, O> {
    pub(crate) fn new(hash: u64, key: K, started: Moment) -> Self {
        Self {
            hash,
            key,
            started,
            state: Mutex::new(State::new()),
            elected: OnceLock::new(),
            leader: Caller::current(),
        }
    }

    /// The next flight of a line in which leaders were elected.
    pub(crate) fn in_line(self, elected: Arc<AtomicU32>) -> Self {
        Self {
            elected: elected.into(),
            ..self
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FlightState<T, E, O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, T, E, O> Keyed<K> for Flight<K, T, E, O> {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn key(&self) -> &K {
        &self.key
    }
}
