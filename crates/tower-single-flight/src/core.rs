//! The core: equal calls become one. No HTTP, no tower.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::builder::{Policy, SingleFlightBuilder};
use crate::call::{ByFn, Call};
use crate::counts::{Counters, Counts};
use crate::error::FlightError;
use crate::flight::{Flight, Outcome};
use crate::table::Table;
use crate::tasks::Tasks;

/// What a caller gets: the call's own output, untouched, when nobody joined it, or a shared copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flown<O, T> {
    /// The caller led the flight, and nobody else waited when it ended.
    Alone(O),
    /// The result that all who waited got.
    Shared(T),
}

impl<T> Flown<T, T> {
    /// The result, however it came.
    pub fn into_inner(self) -> T {
        let (Self::Alone(value) | Self::Shared(value)) = self;
        value
    }
}

/// Calls with equal keys that are asked for at the same time become one call.
///
/// The call runs inline in the first caller (the *leader*) until somebody joins; from then on it is a task
/// of its own, and no caller's fate is another's:
///
/// | What happens | Nobody joined | Somebody joined |
/// |---|---|---|
/// | the leader's future is dropped | the call is dropped with it | the others get the result of the one call |
/// | the leader (or a follower) is not polled | it waits for itself | the others get the result |
/// | the call fails | the leader gets the error | all get it, in one `Arc`; it is not kept |
/// | the call panics, or making it does | the panic is passed on | all get [`FlightError::Panicked`] |
/// | everybody leaves | the call is dropped | the call is dropped |
///
/// The key is free again afterwards, in every case. Clones share their flights; nothing else does.
///
/// `T` is what is shared (cloned for each caller: wrap it in an `Arc` if it is large), `E` the call's error,
/// `O` the call's own output where that differs from `T`
/// ([`builder_sharing`](SingleFlight::builder_sharing)).
///
/// A follower needs a tokio runtime with its timer enabled, to move the call into a task; a caller that
/// leads needs none. Not re-entrant: a call that asks for its own key waits for itself until it is too old.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use tower_single_flight::SingleFlight;
///
/// let flights: SingleFlight<u32, Arc<str>, std::io::Error> = SingleFlight::new();
/// let one = flights.run(7, || async { Ok("row 7".into()) });
/// let other = flights.run(7, || async { Ok("never called".into()) });
/// let (one, other) = tokio::join!(biased; one, other);
/// # let _ = (one, other);
/// # });
/// ```
pub struct SingleFlight<K, T, E = std::convert::Infallible, O = T> {
    pub(crate) core: Arc<Core<K, T, E, O>>,
}

pub(crate) struct Core<K, T, E, O> {
    pub(crate) table: Table<Flight<K, T, E, O>>,
    pub(crate) share: Share<O, T>,
    pub(crate) policy: Policy,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) counters: Arc<Counters>,
}

/// How the call's own output becomes what is shared.
pub(crate) enum Share<O, T> {
    Now(fn(O) -> T),
    Later(Arc<dyn Fn(O) -> BoxFuture<'static, T> + Send + Sync>),
}

impl<K, T, E, O> Core<K, T, E, O> {
    /// Publishes, frees the key, then wakes: a woken caller that calls again starts a new flight.
    pub(crate) fn land(&self, flight: &Arc<Flight<K, T, E, O>>, outcome: Outcome<T, E>) {
        let wake = flight.lock().land(outcome);
        self.table.remove(flight);
        wake.all();
    }

    /// The call was dropped; whoever joined meanwhile enters again.
    pub(crate) fn close(&self, flight: &Arc<Flight<K, T, E, O>>) {
        let wake = flight.lock().closed();
        self.table.remove(flight);
        wake.all();
    }
}

impl<K, T, E> SingleFlight<K, T, E> {
    /// Flights with the defaults of [`SingleFlight::builder`].
    pub fn new() -> Self {
        Self::with(Policy::default(), Share::Now(|output| output))
    }

    /// Chooses the settings.
    pub fn builder() -> SingleFlightBuilder<K, T, E> {
        SingleFlightBuilder::new(Share::Now(|output| output))
    }

    /// Runs `call`, or waits for the one with an equal key that is running.
    ///
    /// `call` is called when the future is first polled, and only if this caller leads. Dropping the
    /// future leaves the flight; the call goes on while anybody else waits for it.
    pub fn run<F, Fut>(
        &self,
        key: K,
        call: F,
    ) -> impl Future<Output = Result<T, FlightError<E>>> + Send + use<K, T, E, F, Fut>
    where
        K: Hash + Eq + Send + Sync + 'static,
        T: Clone + Send + 'static,
        E: Send + Sync + 'static,
        F: FnOnce() -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let call = self.fly(key, call);
        async move { call.await.map(Flown::into_inner) }
    }
}

impl<K, T, E, O> SingleFlight<K, T, E, O> {
    pub(crate) fn with(policy: Policy, share: Share<O, T>) -> Self {
        Self {
            core: Arc::new(Core {
                table: Table::new(policy.shards),
                share,
                policy,
                tasks: Arc::default(),
                counters: Arc::default(),
            }),
        }
    }

    /// Like [`SingleFlight::builder`], for calls whose own output is not what is shared. A lone leader
    /// keeps its output untouched ([`Flown::Alone`]); `share` turns it into `T` when somebody waits for
    /// it. It runs in the flight's task; the followers wait for it too.
    pub fn builder_sharing<S, Fut>(share: S) -> SingleFlightBuilder<K, T, E, O>
    where
        S: Fn(O) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        SingleFlightBuilder::new(Share::Later(Arc::new(move |output| {
            Box::pin(share(output))
        })))
    }

    /// Like [`SingleFlight::run`], but tells the call's own output from a shared copy.
    pub fn fly<F, Fut>(
        &self,
        key: K,
        call: F,
    ) -> impl Future<Output = Result<Flown<O, T>, FlightError<E>>> + Send + use<K, T, E, O, F, Fut>
    where
        K: Hash + Eq + Send + Sync + 'static,
        T: Clone + Send + 'static,
        E: Send + Sync + 'static,
        O: Send + 'static,
        F: FnOnce() -> Fut + Send,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        Call::new(Arc::clone(&self.core), key, ByFn(call))
    }

    /// Like [`SingleFlight::fly`], but never joins a call that began before this one: it starts a new
    /// flight, which later callers join.
    pub fn fly_fresh<F, Fut>(
        &self,
        key: K,
        call: F,
    ) -> impl Future<Output = Result<Flown<O, T>, FlightError<E>>> + Send + use<K, T, E, O, F, Fut>
    where
        K: Hash + Eq + Send + Sync + 'static,
        T: Clone + Send + 'static,
        E: Send + Sync + 'static,
        O: Send + 'static,
        F: FnOnce() -> Fut + Send,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        Call::new(Arc::clone(&self.core), key, ByFn(call)).fresh(true)
    }

    /// How many flights callers can join right now.
    pub fn flights(&self) -> usize {
        self.core.table.fold(0, |sum, _| sum + 1)
    }

    /// How many callers follow in those flights. Leaders are not counted.
    pub fn followers(&self) -> usize {
        self.core
            .table
            .fold(0, |sum, flight| sum + flight.lock().followers())
    }

    /// How many calls run in a task of their own.
    pub fn tasks(&self) -> usize {
        self.core.tasks.running()
    }

    /// What was merged so far, and what not.
    pub fn counts(&self) -> Counts {
        self.core.counters.read()
    }

    /// For a shutdown: from now on nothing is merged any more, so no further call becomes a task; waits
    /// until none runs in a task of its own. `false` when `timeout` passes first: the rest goes on
    /// ([`tasks`](Self::tasks) tells how many). Calls inside their callers' futures are their callers'
    /// matter, and callers that come now make theirs there.
    ///
    /// # Cancellation
    ///
    /// Nothing is merged any more; nothing else happens.
    pub async fn drain(&self, timeout: Duration) -> bool {
        let Core { tasks, policy, .. } = &*self.core;
        tasks.drain(&*policy.clock, timeout).await
    }
}

impl<K, T, E> Default for SingleFlight<K, T, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, T, E, O> Clone for SingleFlight<K, T, E, O> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
        }
    }
}

impl<K, T, E, O> fmt::Debug for SingleFlight<K, T, E, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight")
            .field("policy", &self.core.policy)
            .field("flights", &self.flights())
            .field("tasks", &self.tasks())
            .field("counts", &self.counts())
            .finish()
    }
}
