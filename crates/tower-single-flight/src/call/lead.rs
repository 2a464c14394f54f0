//! The leader: polls the call until somebody joins, then waits for it as the others do.

use std::hash::Hash;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Call, Landing, Launch, Place, Role, SharedFlight, Step};
use crate::carry::Carries;
use crate::core::{Core, Flown, Share};
use crate::error::FlightError;
use crate::flight::CallFuture;
use crate::state::{EndInline, Resume};
use crate::task::Work;

impl<K, T, E, O, M> Call<K, T, E, O, M>
where
    K: Hash + Eq + Send + Sync + 'static,
    T: Clone + Send + 'static,
    E: Send + Sync + 'static,
    O: Send + 'static,
    M: Launch<Output = O, Error = E>,
{
    /// Begins the call.
    pub(super) fn launch(
        &mut self,
        flight: SharedFlight<K, T, E, O>,
        launch: M,
        cx: &mut Context<'_>,
    ) -> Step<Landing<O, T, E>> {
        self.role = Role::Leader;
        self.drive(flight, |carries| carries.take_along(launch.launch()), cx)
    }

    pub(super) fn lead(&mut self, cx: &mut Context<'_>) -> Step<Landing<O, T, E>> {
        let Place::Leading(flight) = mem::replace(&mut self.place, Place::Out(None)) else {
            return Step::Again;
        };
        let resumed = flight.lock().resume(cx.waker());
        Step::Return(match resumed {
            Resume::Poll(future) => return self.drive(flight, |_| future, cx),
            Resume::Wait(displaced) => {
                drop(displaced);
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
        start: impl FnOnce(&Carries) -> CallFuture<O, E>,
        cx: &mut Context<'_>,
    ) -> Step<Landing<O, T, E>> {
        let core = &self.core;
        let result = match poll_inline(core, &flight, start, cx) {
            Inlined::Pending(future) => {
                let (promoted, displaced) = flight.lock().rest(future, cx.waker());
                drop(displaced);
                if let Some((future, berth)) = promoted {
                    core.spawn(&flight, Work::Call(future), berth);
                }
                self.place = Place::Leading(flight);
                return Step::Return(Poll::Pending);
            }
            Inlined::Ready(result) => result,
        };
        let ended = flight.lock().end_inline();
        let berth = match ended {
            EndInline::Alone => {
                core.table.remove(&flight);
                let landing = result.map(Flown::Alone);
                return Step::Return(Poll::Ready(
                    landing.map_err(|error| FlightError::Failed(Arc::new(error))),
                ));
            }
            EndInline::Joined(berth) => berth,
        };
        match (result, &core.share) {
            (Err(error), _) => core.land(&flight, Err(FlightError::Failed(Arc::new(error)))),
            (Ok(output), Share::Now(share)) => core.land(&flight, Ok(share(output))),
            // In a task, not here: if this caller goes away while the output is made shareable, the
            // followers must still get it.
            (Ok(output), Share::Later(_)) => core.spawn(&flight, Work::Output(output), berth),
        }
        self.place = Place::Leading(flight);
        Step::Again
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
    start: impl FnOnce(&Carries) -> CallFuture<O, E>,
    cx: &mut Context<'_>,
) -> Inlined<O, E> {
    let mut guard = Inline {
        core,
        flight,
        armed: true,
    };
    // An owned future on the stack is dropped before the guard when a poll unwinds.
    let mut future = start(&core.policy.carries);
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
