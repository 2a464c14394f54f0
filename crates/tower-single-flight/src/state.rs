//! The state of one flight: who has the future, who waits, what came out. No runtime, no lock, no clock.
//!
//! `F` is the call's future, `O` what it gives, `V` what is shared, `H` the means to spawn.

use std::mem;
use std::task::Waker;

use crate::seats::{Seat, Seats};

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

/// The answer to a caller that wants to join.
pub(crate) enum Join<F, H> {
    /// Wait on this seat.
    Seated(Seat),
    /// Wait on this seat, after spawning the future.
    Promote(Seat, F, H),
    /// All seats are taken.
    Full,
    /// There is no runtime to spawn on.
    NoRuntime,
    /// The flight has ended: start another.
    Over,
}

/// What the leader finds when it is polled.
pub(crate) enum Resume<F, O, V> {
    /// The future: poll it, then call [`State::rest`] or [`State::end_inline`].
    Poll(F),
    /// The task has it.
    Wait,
    Handed(O),
    Landed(V),
    /// The flight ended without a word, which no leader should ever see.
    Lost,
}

/// How a flight ended that the leader polled to its end.
pub(crate) enum EndInline<H> {
    /// Nobody joined.
    Alone,
    /// Somebody joined during the last poll.
    Joined(H),
}

/// What a leaving party has to clear away, outside the lock.
pub(crate) enum Left<F, O> {
    Nothing,
    /// Drop it, then call [`State::closed`].
    Close(F),
    Output(O),
    /// The last one left: wake the task, which will see that.
    WakeTask(Waker),
}

/// What a follower finds when it is polled.
pub(crate) enum Seated<V> {
    Wait,
    Landed(V),
    /// The flight was closed before it landed: enter again.
    Again,
}

/// Wakers to wake outside the lock.
#[derive(Default)]
#[must_use]
pub(crate) struct Wake(Vec<Waker>);

impl Wake {
    pub(crate) fn all(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
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
            Phase::Inline(future) => return Join::Promote(seat, future, runtime),
            Phase::Polling { promote } => {
                let promote = promote.or(Some(runtime));
                self.phase = Phase::Polling { promote };
            }
            other => self.phase = other,
        }
        Join::Seated(seat)
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
                match &mut self.leader {
                    Leader::Here(Some(old)) => old.clone_from(waker),
                    leader => *leader = Leader::Here(Some(waker.clone())),
                }
                Resume::Wait
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

    /// The leader's poll gave nothing yet. Answers the future if the leader must spawn it.
    pub(crate) fn rest(&mut self, future: F, waker: &Waker) -> Option<(F, H)> {
        self.leader = Leader::Here(Some(waker.clone()));
        match mem::replace(&mut self.phase, Phase::Running) {
            Phase::Polling {
                promote: Some(runtime),
            } => Some((future, runtime)),
            _ => {
                self.phase = Phase::Inline(future);
                None
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
    pub(crate) fn leader_leaves(&mut self) -> Left<F, O> {
        self.leader = Leader::Gone;
        match mem::replace(&mut self.phase, Phase::Closing) {
            Phase::Inline(future) => Left::Close(future),
            Phase::Handed(output) => {
                self.phase = Phase::Over;
                Left::Output(output)
            }
            other => {
                self.phase = other;
                self.wake_deserted_task()
            }
        }
    }

    // A follower.

    pub(crate) fn poll_seat(&mut self, seat: Seat, waker: &Waker) -> Seated<V>
    where
        V: Clone,
    {
        match &self.phase {
            Phase::Landed(value) => Seated::Landed(value.clone()),
            Phase::Handed(_) | Phase::Over => Seated::Again,
            _ => {
                self.seats.set(seat, waker);
                Seated::Wait
            }
        }
    }

    pub(crate) fn leave_seat(&mut self, seat: Seat) -> Left<F, O> {
        self.seats.free(seat);
        if self.seats.taken() == 0
            && let Phase::Polling { promote } = &mut self.phase
        {
            *promote = None;
        }
        self.wake_deserted_task()
    }

    fn wake_deserted_task(&mut self) -> Left<F, O> {
        if self.is_deserted()
            && let Phase::Running = self.phase
            && let Some(waker) = self.task.take()
        {
            return Left::WakeTask(waker);
        }
        Left::Nothing
    }

    // The task.

    /// The task is polled. False when nobody waits any more: drop the future, then call
    /// [`State::closed`]. Until this is asked, a newcomer may still join a deserted flight.
    pub(crate) fn wanted(&mut self, waker: &Waker) -> bool {
        if self.is_deserted() {
            self.phase = Phase::Closing;
            return false;
        }
        match &mut self.task {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
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
        Ok(Wake(waker.into_iter().collect()))
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
        self.task = None;
        Wake(wakers)
    }
}
