//! One caller: it leads a flight or follows one.

use std::future::Future;
use std::hash::Hash;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tower_claim::Moment;

use crate::caller::{Caller, Waiting};
use crate::core::{CallFuture, Core, Flight, Flown, Share};
use crate::error::FlightError;
use crate::seats::Seat;
use crate::state::{EndInline, Join, Left, Resume, Seated};
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

struct Follower<K, T, E, O, M> {
    flight: SharedFlight<K, T, E, O>,
    seat: Seat,
    key: K,
    launch: M,
    alarm: Alarm,
    timer: BoxFuture<'static, ()>,
    caller: Caller,
    waiting: Waiting,
}

/// What it means when the follower's timer fires.
#[derive(Clone, Copy)]
enum Alarm {
    FlightAged,
    WaitTimeout,
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
    fn enter(&mut self, cx: &mut Context<'_>) -> Step<Landing<O, T, E>> {
        let Place::Enter(key, launch) = mem::replace(&mut self.place, Place::Out(None)) else {
            return Step::Again;
        };
        let Core { table, policy, .. } = &*self.core;
        let now = policy.clock.now();
        let arrived = *self.arrived.get_or_insert(now);
        let fresh = mem::take(&mut self.fresh);
        let hash = table.hash(&key);
        let judge = |flight: &Flight<K, T, E, O>| {
            if fresh || now.saturating_since(flight.started) >= policy.max_age {
                return Verdict::Replace;
            }
            let runtime = || Handle::try_current().ok();
            match flight.lock().join(policy.max_followers, runtime) {
                Join::Over => Verdict::Replace,
                joined => Verdict::Keep(joined),
            }
        };
        let (flight, key, joined) =
            match table.enter(hash, key, judge, |key| Flight::new(hash, key, now)) {
                Entered::New(flight) => {
                    return self.drive(flight, || Box::pin(launch.launch()), cx);
                }
                Entered::Found(flight, key, joined) => (flight, key, joined),
            };
        self.role = Role::Follower;
        let seat = match joined {
            Join::Seated(seat) => seat,
            Join::Promote(seat, future, runtime) => {
                self.core.spawn(&flight, Work::Call(future), &runtime);
                seat
            }
            Join::Full => return self.refuse(FlightError::Overloaded, launch),
            Join::NoRuntime | Join::Over => return self.refuse(FlightError::NoRuntime, launch),
        };
        let policy = &self.core.policy;
        let (aged, waited) = (flight.started + policy.max_age, arrived + policy.wait);
        let (alarm, at) = if aged <= waited {
            (Alarm::FlightAged, aged)
        } else {
            (Alarm::WaitTimeout, waited)
        };
        let caller = Caller::current();
        let waiting = caller.wait_for(&flight.leader, hash);
        self.place = Place::Following(Follower {
            flight,
            seat,
            key,
            launch,
            alarm,
            timer: policy.clock.sleep_until(at),
            caller,
            waiting,
        });
        Step::Again
    }

    fn refuse(&mut self, error: FlightError<E>, launch: M) -> Step<Landing<O, T, E>> {
        self.place = Place::Out(Some(launch));
        Step::Return(Poll::Ready(Err(error)))
    }

    fn lead(&mut self, cx: &mut Context<'_>) -> Step<Landing<O, T, E>> {
        let Place::Leading(flight) = mem::replace(&mut self.place, Place::Out(None)) else {
            return Step::Again;
        };
        let resumed = flight.lock().resume(cx.waker());
        Step::Return(match resumed {
            Resume::Poll(future) => return self.drive(flight, || future, cx),
            Resume::Wait => {
                self.place = Place::Leading(flight);
                Poll::Pending
            }
            Resume::Handed(output) => Poll::Ready(Ok(Flown::Alone(output))),
            Resume::Landed(outcome) => Poll::Ready(outcome.map(Flown::Shared)),
            Resume::Lost => Poll::Ready(Err(FlightError::ShuttingDown)),
        })
    }

    /// Polls the call inline.
    fn drive(
        &mut self,
        flight: SharedFlight<K, T, E, O>,
        start: impl FnOnce() -> CallFuture<O, E>,
        cx: &mut Context<'_>,
    ) -> Step<Landing<O, T, E>> {
        self.role = Role::Leader;
        let core = &self.core;
        let result = match poll_inline(core, &flight, start, cx) {
            Inlined::Pending(future) => {
                let promoted = flight.lock().rest(future, cx.waker());
                if let Some((future, runtime)) = promoted {
                    core.spawn(&flight, Work::Call(future), &runtime);
                }
                self.place = Place::Leading(flight);
                return Step::Return(Poll::Pending);
            }
            Inlined::Ready(result) => result,
        };
        let ended = flight.lock().end_inline();
        let runtime = match ended {
            EndInline::Alone => {
                core.table.remove(&flight);
                let landing = result.map(Flown::Alone);
                return Step::Return(Poll::Ready(
                    landing.map_err(|error| FlightError::Failed(Arc::new(error))),
                ));
            }
            EndInline::Joined(runtime) => runtime,
        };
        let outcome = match (result, &core.share) {
            (Err(error), _) => Err(FlightError::Failed(Arc::new(error))),
            (Ok(output), Share::Now(share)) => Ok(share(output)),
            (Ok(output), Share::Later(_)) => {
                // In a task, not here: if this caller goes away while the output is made shareable, the
                // followers must still get it.
                core.spawn(&flight, Work::Output(output), &runtime);
                self.place = Place::Leading(flight);
                return Step::Again;
            }
        };
        core.land(&flight, outcome.clone());
        Step::Return(Poll::Ready(outcome.map(Flown::Shared)))
    }

    fn follow(&mut self, cx: &mut Context<'_>) -> Step<Landing<O, T, E>> {
        let Place::Following(follower) = &mut self.place else {
            return Step::Again;
        };
        let seated = follower.flight.lock().poll_seat(follower.seat, cx.waker());
        if let Seated::Wait = seated
            && follower.timer.as_mut().poll(cx).is_pending()
        {
            return Step::Return(Poll::Pending);
        }
        let Some(follower) = self.stand_up() else {
            return Step::Again;
        };
        match (seated, follower.alarm) {
            (Seated::Landed(outcome), _) => {
                if let Err(FlightError::Panicked) = outcome {
                    follower.caller.panicked();
                }
                self.place = Place::Out(Some(follower.launch));
                Step::Return(Poll::Ready(outcome.map(Flown::Shared)))
            }
            (Seated::Again, _) => {
                self.place = Place::Enter(follower.key, follower.launch);
                Step::Again
            }
            (Seated::Wait, Alarm::FlightAged) => {
                self.core.table.remove(&follower.flight);
                self.refuse(FlightError::FlightAged, follower.launch)
            }
            (Seated::Wait, Alarm::WaitTimeout) => {
                match self.elect(&follower.flight, follower.key) {
                    Some(flight) => {
                        // The wait is over on the stage board, too, before the call begins.
                        follower.waiting.end();
                        let launch = follower.launch;
                        self.drive(flight, || Box::pin(launch.launch()), cx)
                    }
                    None => self.refuse(FlightError::WaitTimeout, follower.launch),
                }
            }
        }
    }

    /// This follower waited too long. It may take the place of the flight with a new one, unless enough
    /// others did.
    fn elect(&self, old: &SharedFlight<K, T, E, O>, key: K) -> Option<SharedFlight<K, T, E, O>> {
        let Core { table, policy, .. } = &*self.core;
        let line = old.elected.get_or_init(Arc::default);
        let one_more = |leaders| (leaders < policy.extra_leaders).then_some(leaders + 1);
        line.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .ok()?;
        let line_of_new = Arc::clone(line);
        let new = table.succeed(old, |hash| {
            Flight::new(hash, key, policy.clock.now()).in_line(line_of_new)
        });
        if new.is_none() {
            line.fetch_sub(1, Ordering::AcqRel);
        }
        new
    }
}

impl<K, T, E, O, M> Call<K, T, E, O, M> {
    /// Leaves the seat.
    fn stand_up(&mut self) -> Option<Follower<K, T, E, O, M>> {
        let Place::Following(follower) = mem::replace(&mut self.place, Place::Out(None)) else {
            return None;
        };
        let left = follower.flight.lock().leave_seat(follower.seat);
        clear_away(&self.core, &follower.flight, left);
        Some(follower)
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
    left: Left<CallFuture<O, E>, O>,
) {
    match left {
        Left::Nothing => {}
        Left::Close(future) => {
            let _close = Close { core, flight };
            drop(future);
        }
        Left::Output(output) => drop(output),
        Left::WakeTask(waker) => waker.wake(),
    }
}

/// Frees the key even if dropping the call panics.
struct Close<'a, K, T, E, O> {
    core: &'a Core<K, T, E, O>,
    flight: &'a SharedFlight<K, T, E, O>,
}

impl<K, T, E, O> Drop for Close<'_, K, T, E, O> {
    fn drop(&mut self) {
        self.core.close(self.flight);
    }
}

enum Inlined<O, E> {
    Pending(CallFuture<O, E>),
    Ready(Result<O, E>),
}

/// One poll under the leader's hands. If the call panics, or making it does, the key is freed, whoever
/// joined meanwhile is told, and the panic is passed on.
fn poll_inline<K, T, E, O>(
    core: &Core<K, T, E, O>,
    flight: &SharedFlight<K, T, E, O>,
    start: impl FnOnce() -> CallFuture<O, E>,
    cx: &mut Context<'_>,
) -> Inlined<O, E> {
    let mut guard = Inline {
        core,
        flight,
        armed: true,
    };
    // An owned future on the stack is dropped before the guard when a poll unwinds.
    let mut future = start();
    let inlined = match future.as_mut().poll(cx) {
        Poll::Pending => Inlined::Pending(future),
        Poll::Ready(result) => {
            // The call is gone before the next one with this key can begin.
            drop(future);
            Inlined::Ready(result)
        }
    };
    guard.armed = false;
    inlined
}

struct Inline<'a, K, T, E, O> {
    core: &'a Core<K, T, E, O>,
    flight: &'a SharedFlight<K, T, E, O>,
    armed: bool,
}

impl<K, T, E, O> Drop for Inline<'_, K, T, E, O> {
    fn drop(&mut self) {
        if self.armed {
            self.core.land(self.flight, Err(FlightError::Panicked));
        }
    }
}
