//! One caller: it leads a flight or follows one.

mod follow;
mod lead;

use std::future::Future;
use std::hash::Hash;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_claim::Moment;

use self::follow::Follower;
use crate::core::{Core, Flown};
use crate::error::FlightError;
use crate::flight::{CallFuture, Flight, FlightLeft};
use crate::state::{Duty, Join};
use crate::table::{Entered, Verdict};
use crate::task::Work;

/// Makes the call. Only a leader launches; who never did has it back.
pub(crate) trait Launch {
    type Output;
    type Error;
    fn launch(self) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send + 'static;
}

pub(crate) struct ByFn<F>(pub(crate) F);

impl<F, Fut, O, E> Launch for ByFn<F>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
{
    type Output = O;
    type Error = E;

    fn launch(self) -> impl Future<Output = Result<O, E>> + Send + 'static {
        (self.0)()
    }
}

/// Who a caller turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    Follower,
}

type SharedFlight<K, T, E, O> = Arc<Flight<K, T, E, O>>;
type Landing<O, T, E> = Result<Flown<O, T>, FlightError<E>>;

/// The caller's future. Dropping it leaves the flight; see [`crate::SingleFlight`].
pub(crate) struct Call<K, T, E, O, M> {
    core: Arc<Core<K, T, E, O>>,
    place: Place<K, T, E, O, M>,
    role: Role,
    fresh: bool,
    /// When this caller came: a follower's wait goes on over flights that were closed.
    arrived: Option<Moment>,
}

enum Place<K, T, E, O, M> {
    Enter(K, M),
    Leading(SharedFlight<K, T, E, O>),
    Following(Follower<K, T, E, O, M>),
    Out(Option<M>),
}

/// What to do with a poll after one step.
enum Step<R> {
    Return(Poll<R>),
    Again,
}

impl<K, T, E, O, M> Call<K, T, E, O, M> {
    pub(crate) fn new(core: Arc<Core<K, T, E, O>>, key: K, launch: M) -> Self {
        Self {
            core,
            place: Place::Enter(key, launch),
            role: Role::Leader,
            fresh: false,
            arrived: None,
        }
    }

    /// Never joins what began earlier.
    pub(crate) fn fresh(mut self, fresh: bool) -> Self {
        self.fresh = fresh;
        self
    }

    /// Another call of the same caller, whose wait goes on.
    pub(crate) fn again(&self, key: K, launch: M) -> Self {
        let mut again = Self::new(Arc::clone(&self.core), key, launch);
        again.arrived = self.arrived;
        again
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// The call that this caller never launched, when it has ended as a follower.
    pub(crate) fn take_launch(&mut self) -> Option<M> {
        match &mut self.place {
            Place::Out(launch) => launch.take(),
            _ => None,
        }
    }
}

// Nothing inside is pinned in place: the futures are boxed.
impl<K, T, E, O, M> Unpin for Call<K, T, E, O, M> {}

impl<K, T, E, O, M> Future for Call<K, T, E, O, M>
where
    K: Hash + Eq + Send + Sync + 'static,
    T: Clone + Send + 'static,
    E: Send + Sync + 'static,
    O: Send + 'static,
    M: Launch<Output = O, Error = E>,
{
    type Output = Landing<O, T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            let step = match &mut this.place {
                Place::Enter(..) => this.enter(cx),
                Place::Leading(_) => this.lead(cx),
                Place::Following(_) => this.follow(cx),
                // Polled after its end.
                Place::Out(_) => Step::Return(Poll::Pending),
            };
            if let Step::Return(poll) = step {
                return poll;
            }
        }
    }
}

impl<K, T, E, O, M> Call<K, T, E, O, M>
where
    K: Hash + Eq + Send + Sync + 'static,
    T: Clone + Send + 'static,
    E: Send + Sync + 'static,
    O: Send + 'static,
    M: Launch<Output = O, Error = E>,
{
    /// Leads if no flight can be joined.
    fn enter(&mut self, cx: &mut Context<'_>) -> Step<Landing<O, T, E>> {
        let Place::Enter(key, launch) = mem::replace(&mut self.place, Place::Out(None)) else {
            return Step::Again;
        };
        let Core {
            table,
            policy,
            tasks,
            counters,
            ..
        } = &*self.core;
        let now = policy.clock.now();
        self.arrived.get_or_insert(now);
        let fresh = mem::take(&mut self.fresh);
        let hash = table.hash(&key);
        let judge = |flight: &Flight<K, T, E, O>| {
            if fresh || now.saturating_since(flight.started) >= policy.max_age {
                return Verdict::Replace;
            }
            match flight.lock().join(policy.max_followers, || tasks.berth()) {
                Join::Over => Verdict::Replace,
                joined => Verdict::Keep(joined),
            }
        };
        let (flight, key, joined) =
            match table.enter(hash, key, judge, |key| Flight::new(hash, key, now)) {
                Entered::New(flight) => {
                    counters.leaders.add();
                    return self.launch(flight, launch, cx);
                }
                Entered::Found(flight, key, joined) => (flight, key, joined),
            };
        let seat = match joined {
            Join::Seated(seat, _) => seat,
            Join::Promote(seat, future, berth) => {
                self.core.spawn(&flight, Work::Call(future), berth);
                seat
            }
            Join::NoRuntime if tasks.is_closed() => {
                // A drain has begun, and is not outlived: nobody joins what is not in the table, so it
                // never becomes a task.
                counters.leaders.add();
                let unlisted = Arc::new(Flight::new(hash, key, now));
                return self.launch(unlisted, launch, cx);
            }
            Join::Full => {
                counters.overloaded.add();
                return self.refuse(FlightError::Overloaded, launch);
            }
            Join::NoRuntime | Join::Over => return self.refuse(FlightError::NoRuntime, launch),
        };
        counters.followers.add();
        self.sit_down(flight, seat, key, launch);
        Step::Again
    }

    fn refuse(&mut self, error: FlightError<E>, launch: M) -> Step<Landing<O, T, E>> {
        self.role = Role::Follower;
        self.place = Place::Out(Some(launch));
        Step::Return(Poll::Ready(Err(error)))
    }
}

impl<K, T, E, O, M> Drop for Call<K, T, E, O, M> {
    fn drop(&mut self) {
        match &self.place {
            Place::Leading(flight) => {
                let left = flight.lock().leader_leaves();
                clear_away(&self.core, flight, left);
            }
            Place::Following(_) => drop(self.stand_up()),
            Place::Enter(..) | Place::Out(_) => {}
        }
    }
}

/// Does, without the lock, what somebody who left has left to do.
fn clear_away<K, T, E, O>(
    core: &Arc<Core<K, T, E, O>>,
    flight: &SharedFlight<K, T, E, O>,
    left: FlightLeft<E, O>,
) {
    drop(left.displaced);
    match left.duty {
        Duty::Nothing => {}
        Duty::Close(future) => drop_and_close(core, flight, future),
        Duty::Output(output) => drop(output),
        Duty::StayInline(berth) => drop(berth),
        Duty::WakeTask(waker) => waker.wake(),
    }
}

/// Frees the key even if dropping the call panics.
fn drop_and_close<K, T, E, O>(
    core: &Core<K, T, E, O>,
    flight: &SharedFlight<K, T, E, O>,
    future: CallFuture<O, E>,
) {
    struct Close<'a, K, T, E, O>(&'a Core<K, T, E, O>, &'a SharedFlight<K, T, E, O>);

    impl<K, T, E, O> Drop for Close<'_, K, T, E, O> {
        fn drop(&mut self) {
            self.0.close(self.1);
        }
    }

    let _close = Close(core, flight);
    drop(future);
}
