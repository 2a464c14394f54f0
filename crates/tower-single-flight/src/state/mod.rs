//! The state of one flight: who has the future, who waits, what came out. No runtime, no lock, no clock.
//!
//! `F` is the call's future, `O` what it gives, `V` what is shared, `H` the means to spawn.

mod answer;

use std::mem;
use std::task::Waker;

use crate::seats::{Seat, Seats, replace};

use answer::Displaced;
pub(crate) use answer::{Duty, EndInline, Join, Left, Resume, Seated, Wake, Wanted};

/// Where the flight's future is.
enum Phase<F, O, V, H> {
    /// The leader polls it right now. A joiner leaves its means to spawn here; the leader spawns when
    /// its poll returns.
    Polling { promote: Option<H> },
    /// At rest between two polls of the leader. Whoever joins takes it and spawns it, so it moves on even
    /// if the leader is never polled again (Oxide RFD 609, "futurelock").
    Inline(F),
    /// In a task of its own.
    Running,
    /// Nobody wants it any more and it is being dropped. Who joins now comes back when it is gone, so
    /// that the old call and the next never run at the same time.
    Closing,
    /// Ended when only the leader was left, who gets the output untouched.
    Handed(O),
    /// Ended with a result for all who wait.
    Landed(V),
    /// Ended; nothing to have here.
    Over,
}

/// Whether the first caller still waits.
enum Leader {
    Here(Option<Waker>),
    Gone,
}

pub(crate) struct State<F, O, V, H> {
    phase: Phase<F, O, V, H>,
    leader: Leader,
    seats: Seats,
    task: Option<Waker>,
}

impl<F, O, V, H> State<F, O, V, H> {
    /// A flight whose leader is about to poll it.
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Polling { promote: None },
            leader: Leader::Here(None),
            seats: Seats::default(),
            task: None,
        }
    }

    pub(crate) fn followers(&self) -> usize {
        self.seats.taken()
    }

    fn leader_is_here(&self) -> bool {
        matches!(self.leader, Leader::Here(_))
    }

    fn is_deserted(&self) -> bool {
        self.seats.taken() == 0 && !self.leader_is_here()
    }

    /// A caller wants to share this flight. `runtime` is asked for in every case: a follower needs it for
    /// its timer.
    pub(crate) fn join(
        &mut self,
        max_followers: usize,
        runtime: impl FnOnce() -> Option<H>,
    ) -> Join<F, H> {
        if matches!(
            self.phase,
            Phase::Handed(_) | Phase::Landed(_) | Phase::Over
        ) {
            return Join::Over;
        }
        if self.seats.taken() >= max_followers {
            return Join::Full;
        }
        let Some(runtime) = runtime() else {
            return Join::NoRuntime;
        };
        let seat = self.seats.take();
        match mem::replace(&mut self.phase, Phase::Running) {
            Phase::Inline(future) => Join::Promote(seat, future, runtime),
            Phase::Polling { promote: None } => {
                let promote = Some(runtime);
                self.phase = Phase::Polling { promote };
                Join::Seated(seat, None)
            }
            other => {
                self.phase = other;
                Join::Seated(seat, Some(runtime))
            }
        }
    }

    // The leader.

    /// The leader is polled.
    pub(crate) fn resume(&mut self, waker: &Waker) -> Resume<F, O, V>
    where
        V: Clone,
    {
        match mem::replace(&mut self.phase, Phase::Over) {
            Phase::Inline(future) => {
                self.phase = Phase::Polling { promote: None };
                Resume::Poll(future)
            }
            Phase::Running => {
                self.phase = Phase::Running;
                Resume::Wait(self.leader_waits(waker))
            }
            Phase::Handed(output) => Resume::Handed(output),
            Phase::Landed(value) => {
                self.phase = Phase::Landed(value.clone());
                Resume::Landed(value)
            }
            other @ (Phase::Polling { .. } | Phase::Closing | Phase::Over) => {
                self.phase = other;
                Resume::Lost
            }
        }
    }

    fn leader_waits(&mut self, waker: &Waker) -> Displaced {
        match &mut self.leader {
            Leader::Here(place) => replace(place, waker),
            Leader::Gone => None,
        }
    }

    /// The leader's poll gave nothing yet. Answers the future if the leader must spawn it.
    pub(crate) fn rest(&mut self, future: F, waker: &Waker) -> (Option<(F, H)>, Displaced) {
        let displaced = self.leader_waits(waker);
        match mem::replace(&mut self.phase, Phase::Running) {
            Phase::Polling {
                promote: Some(runtime),
            } => (Some((future, runtime)), displaced),
            _ => {
                self.phase = Phase::Inline(future);
                (None, displaced)
            }
        }
    }

    /// The leader's poll gave the output.
    pub(crate) fn end_inline(&mut self) -> EndInline<H> {
        match mem::replace(&mut self.phase, Phase::Running) {
            Phase::Polling {
                promote: Some(runtime),
            } => EndInline::Joined(runtime),
            _ => {
                self.phase = Phase::Over;
                EndInline::Alone
            }
        }
    }

    /// The leader's future was dropped by its caller, or has its answer.
    pub(crate) fn leader_leaves(&mut self) -> Left<F, O, H> {
        let displaced = match mem::replace(&mut self.leader, Leader::Gone) {
            Leader::Here(waker) => waker,
            Leader::Gone => None,
        };
        let duty = match mem::replace(&mut self.phase, Phase::Closing) {
            Phase::Inline(future) => Duty::Close(future),
            Phase::Handed(output) => {
                self.phase = Phase::Over;
                Duty::Output(output)
            }
            other => {
                self.phase = other;
                self.wake_deserted_task()
            }
        };
        Left { displaced, duty }
    }

    // A follower.

    pub(crate) fn poll_seat(&mut self, seat: Seat, waker: &Waker) -> Seated<V>
    where
        V: Clone,
    {
        match &self.phase {
            Phase::Landed(value) => Seated::Landed(value.clone()),
            Phase::Handed(_) | Phase::Over => Seated::Again,
            _ => Seated::Wait(self.seats.set(seat, waker)),
        }
    }

    pub(crate) fn leave_seat(&mut self, seat: Seat) -> Left<F, O, H> {
        let displaced = self.seats.free(seat);
        let duty = match &mut self.phase {
            Phase::Polling { promote } if self.seats.taken() == 0 => {
                promote.take().map_or(Duty::Nothing, Duty::StayInline)
            }
            _ => self.wake_deserted_task(),
        };
        Left { displaced, duty }
    }

    fn wake_deserted_task(&mut self) -> Duty<F, O, H> {
        if self.is_deserted()
            && let Phase::Running = self.phase
            && let Some(waker) = self.task.take()
        {
            return Duty::WakeTask(waker);
        }
        Duty::Nothing
    }

    // The task.

    /// The task is polled. When nobody waits any more: drop the future, then call [`State::closed`]. Until
    /// this is asked, a newcomer may still join a deserted flight.
    pub(crate) fn wanted(&mut self, waker: &Waker) -> Wanted {
        if self.is_deserted() {
            self.phase = Phase::Closing;
            return Wanted::No;
        }
        Wanted::Yes(replace(&mut self.task, waker))
    }

    /// The call gave its output. If only the leader is left it gets it untouched, else it comes back.
    pub(crate) fn hand(&mut self, output: O) -> Result<Wake, O> {
        if self.seats.taken() > 0 {
            return Err(output);
        }
        let Leader::Here(waker) = &mut self.leader else {
            return Err(output);
        };
        let waker = waker.take();
        self.phase = Phase::Handed(output);
        Ok(Wake {
            wakers: waker.into_iter().collect(),
            displaced: self.task.take(),
        })
    }

    // The end.

    /// Gives `value` to all who wait, once.
    pub(crate) fn land(&mut self, value: V) -> Wake {
        self.phase = Phase::Landed(value);
        self.wake_all()
    }

    /// The future is dropped. Who joined meanwhile enters again.
    pub(crate) fn closed(&mut self) -> Wake {
        self.phase = Phase::Over;
        self.wake_all()
    }

    fn wake_all(&mut self) -> Wake {
        let mut wakers = self.seats.wakers();
        if let Leader::Here(waker) = &mut self.leader {
            wakers.extend(waker.take());
        }
        Wake {
            wakers,
            displaced: self.task.take(),
        }
    }
}
