//! A follower: waits on its seat, with its own alarm.

use std::hash::Hash;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower_claim::Moment;

use super::{Call, Landing, Launch, Place, Role, SharedFlight, Step, clear_away};
use crate::caller::{Caller, Waiting};
use crate::core::{Core, Flown};
use crate::error::FlightError;
use crate::flight::Flight;
use crate::seats::Seat;
use crate::state::Seated;

pub(super) struct Follower<K, T, E, O, M> {
    flight: SharedFlight<K, T, E, O>,
    seat: Seat,
    key: K,
    launch: M,
    alarm: Alarm,
    at: Moment,
    /// Made when it is first polled, with the seat in safe hands: a clock without its runtime panics.
    timer: Option<BoxFuture<'static, ()>>,
    caller: Caller,
    waiting: Waiting,
}

/// What it means when the follower's timer fires.
#[derive(Clone, Copy)]
enum Alarm {
    FlightAged,
    WaitTimeout,
}

impl<K, T, E, O, M> Call<K, T, E, O, M>
where
    K: Hash + Eq + Send + Sync + 'static,
    T: Clone + Send + 'static,
    E: Send + Sync + 'static,
    O: Send + 'static,
    M: Launch<Output = O, Error = E>,
{
    /// Takes the seat that the flight gave.
    pub(super) fn sit_down(
        &mut self,
        flight: SharedFlight<K, T, E, O>,
        seat: Seat,
        key: K,
        launch: M,
    ) {
        self.role = Role::Follower;
        let policy = &self.core.policy;
        let aged = flight.started + policy.max_age;
        let waited = self.arrived.unwrap_or(flight.started) + policy.wait;
        let (alarm, at) = if aged <= waited {
            (Alarm::FlightAged, aged)
        } else {
            (Alarm::WaitTimeout, waited)
        };
        let caller = Caller::current();
        let waiting = caller.wait_for(&flight.leader, flight.hash);
        self.place = Place::Following(Follower {
            flight,
            seat,
            key,
            launch,
            alarm,
            at,
            timer: None,
            caller,
            waiting,
        });
    }

    pub(super) fn follow(&mut self, cx: &mut Context<'_>) -> Step<Landing<O, T, E>> {
        let Place::Following(follower) = &mut self.place else {
            return Step::Again;
        };
        let seated = follower.flight.lock().poll_seat(follower.seat, cx.waker());
        let landed = match seated {
            Seated::Landed(outcome) => Some(outcome),
            Seated::Again => {
                if let Some(follower) = self.stand_up() {
                    self.place = Place::Enter(follower.key, follower.launch);
                }
                return Step::Again;
            }
            Seated::Wait(displaced) => {
                drop(displaced);
                let clock = &self.core.policy.clock;
                let timer = follower
                    .timer
                    .get_or_insert_with(|| clock.sleep_until(follower.at));
                if timer.as_mut().poll(cx).is_pending() {
                    return Step::Return(Poll::Pending);
                }
                None
            }
        };
        let Some(follower) = self.stand_up() else {
            return Step::Again;
        };
        match landed {
            Some(outcome) => {
                if let Err(FlightError::Panicked) = outcome {
                    follower.caller.panicked();
                }
                self.place = Place::Out(Some(follower.launch));
                Step::Return(Poll::Ready(outcome.map(Flown::Shared)))
            }
            None => self.time_is_up(follower, cx),
        }
    }

    fn time_is_up(
        &mut self,
        follower: Follower<K, T, E, O, M>,
        cx: &mut Context<'_>,
    ) -> Step<Landing<O, T, E>> {
        let counters = &self.core.counters;
        match follower.alarm {
            Alarm::FlightAged => {
                counters.aged.add();
                self.core.table.remove(&follower.flight);
                self.refuse(FlightError::FlightAged, follower.launch)
            }
            Alarm::WaitTimeout => {
                counters.waited_out.add();
                let Some(flight) = self.elect(&follower.flight, follower.key) else {
                    return self.refuse(FlightError::WaitTimeout, follower.launch);
                };
                counters.leaders.add();
                // The wait is over on the stage board, too, before the call begins.
                follower.waiting.end();
                self.launch(flight, follower.launch, cx)
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
    pub(super) fn stand_up(&mut self) -> Option<Follower<K, T, E, O, M>> {
        let Place::Following(follower) = mem::replace(&mut self.place, Place::Out(None)) else {
            return None;
        };
        let left = follower.flight.lock().leave_seat(follower.seat);
        clear_away(&self.core, &follower.flight, left);
        Some(follower)
    }
}
