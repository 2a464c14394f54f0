//! A flight that somebody joined: a task of its own.

use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;

use crate::core::{Core, Share};
use crate::error::FlightError;
use crate::flight::{CallFuture, Flight};
use crate::state::Wanted;
use crate::tasks::{Berth, Counted};

/// What the task still has to do.
pub(crate) enum Work<T, E, O> {
    Call(CallFuture<O, E>),
    /// The leader polled the call to its end, and somebody joined during that last poll.
    Output(O),
    Share(BoxFuture<'static, T>),
    Nothing,
}

/// The task. It holds the future itself, so dropping the task (a runtime that is shut down) drops the
/// call first and then tells all who wait.
pub(crate) struct Task<K, T, E, O> {
    core: Arc<Core<K, T, E, O>>,
    flight: Arc<Flight<K, T, E, O>>,
    work: Work<T, E, O>,
    /// Last, so that a drain sees the task go when everything of it is gone.
    _counted: Counted,
}

impl<K, T, E, O> Core<K, T, E, O>
where
    K: Send + Sync + 'static,
    T: Clone + Send + 'static,
    E: Send + Sync + 'static,
    O: Send + 'static,
{
    /// Moves the flight into a task.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        flight: &Arc<Flight<K, T, E, O>>,
        work: Work<T, E, O>,
        berth: Berth,
    ) {
        let Berth { runtime, counted } = berth;
        runtime.spawn(Task {
            core: Arc::clone(self),
            flight: Arc::clone(flight),
            work,
            _counted: counted,
        });
    }
}

// Nothing inside is pinned in place: the futures are boxed.
impl<K, T, E, O> Unpin for Task<K, T, E, O> {}

impl<K, T, E, O> Future for Task<K, T, E, O>
where
    T: Clone,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let wanted = this.flight.lock().wanted(cx.waker());
        match wanted {
            Wanted::Yes(displaced) => drop(displaced),
            Wanted::No => {
                let work = mem::replace(&mut this.work, Work::Nothing);
                let _ = catch_unwind(AssertUnwindSafe(|| drop(work)));
                this.core.close(&this.flight);
                return Poll::Ready(());
            }
        }
        let flight = Arc::clone(&this.flight);
        let advance = || flight.leader.enter(|| this.advance(cx));
        match catch_unwind(AssertUnwindSafe(advance)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => {}
            Err(_) => {
                let work = mem::replace(&mut this.work, Work::Nothing);
                let _ = catch_unwind(AssertUnwindSafe(|| drop(work)));
                flight.leader.panicked();
                this.core.land(&flight, Err(FlightError::Panicked));
            }
        }
        Poll::Ready(())
    }
}

impl<K, T, E, O> Task<K, T, E, O> {
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<()>
    where
        T: Clone,
    {
        loop {
            match &mut self.work {
                Work::Call(call) => {
                    let result = ready!(call.as_mut().poll(cx));
                    // The call is gone before the next one with this key can begin.
                    self.work = Work::Nothing;
                    match result {
                        Ok(output) => self.work = Work::Output(output),
                        Err(error) => {
                            let error = FlightError::Failed(Arc::new(error));
                            self.core.land(&self.flight, Err(error));
                            return Poll::Ready(());
                        }
                    }
                }
                Work::Output(_) => {
                    let Work::Output(output) = mem::replace(&mut self.work, Work::Nothing) else {
                        continue;
                    };
                    let handed = self.flight.lock().hand(output);
                    match (handed, &self.core.share) {
                        (Ok(wake), _) => {
                            self.core.table.remove(&self.flight);
                            wake.all();
                            return Poll::Ready(());
                        }
                        (Err(output), Share::Now(share)) => {
                            self.core.land(&self.flight, Ok(share(output)));
                            return Poll::Ready(());
                        }
                        (Err(output), Share::Later(share)) => {
                            self.work = Work::Share(share(output))
                        }
                    }
                }
                Work::Share(share) => {
                    let value = ready!(share.as_mut().poll(cx));
                    self.work = Work::Nothing;
                    self.core.land(&self.flight, Ok(value));
                    return Poll::Ready(());
                }
                Work::Nothing => return Poll::Ready(()),
            }
        }
    }
}

impl<K, T, E, O> Drop for Task<K, T, E, O> {
    fn drop(&mut self) {
        let work = mem::replace(&mut self.work, Work::Nothing);
        if !matches!(work, Work::Nothing) {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(work)));
            self.core.land(&self.flight, Err(FlightError::ShuttingDown));
        }
    }
}
