//! What [`State`](super::State) answers. Whatever it gives out is woken, polled or dropped outside the
//! flight's lock: all of these run code of others, which may come back to the same flight.

use std::task::Waker;

/// A waker that is not needed any more. It may be the last of its task, whose drop takes along another
/// caller of the same flight: under the lock, that caller would wait for ever.
pub(crate) type Displaced = Option<Waker>;

/// The answer to a caller that wants to join.
pub(crate) enum Join<F, H> {
    /// Wait on this seat. The means to spawn were not needed.
    Seated(super::Seat, Option<H>),
    /// Wait on this seat, after spawning the future.
    Promote(super::Seat, F, H),
    /// All seats are taken.
    Full,
    /// There is nothing to spawn on.
    NoRuntime,
    /// The flight has ended: start another.
    Over,
}

/// What the leader finds when it is polled.
pub(crate) enum Resume<F, O, V> {
    /// The future: poll it, then call [`State::rest`](super::State::rest) or
    /// [`State::end_inline`](super::State::end_inline).
    Poll(F),
    /// The task has it.
    Wait(Displaced),
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

/// What a leaving party leaves behind.
#[must_use]
pub(crate) struct Left<F, O, H> {
    pub(crate) displaced: Displaced,
    pub(crate) duty: Duty<F, O, H>,
}

/// What a leaving party has to clear away.
pub(crate) enum Duty<F, O, H> {
    Nothing,
    /// Drop it, then call [`State::closed`](super::State::closed).
    Close(F),
    Output(O),
    /// The last one left during the leader's poll, which needs no means to spawn any more.
    StayInline(H),
    /// The last one left: wake the task, which will see that.
    WakeTask(Waker),
}

/// What a follower finds when it is polled.
pub(crate) enum Seated<V> {
    Wait(Displaced),
    Landed(V),
    /// The flight was closed before it landed: enter again.
    Again,
}

/// Whether anybody still waits for the task.
pub(crate) enum Wanted {
    Yes(Displaced),
    No,
}

/// Who waits for the end.
#[derive(Default)]
#[must_use]
pub(crate) struct Wake {
    pub(crate) wakers: Vec<Waker>,
    pub(crate) displaced: Displaced,
}

impl Wake {
    pub(crate) fn all(self) {
        drop(self.displaced);
        for waker in self.wakers {
            waker.wake();
        }
    }
}
