//! A flight that somebody joined: a task of its own, and the count of such tasks.

use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tower_claim::Clock;

use crate::core::{CallFuture, Core, Flight, Share};
use crate::error::FlightError;

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
        runtime: &Handle,
    ) {
        self.tasks.running.fetch_add(1, Ordering::AcqRel);
        runtime.spawn(Task {
            core: Arc::clone(self),
            flight: Arc::clone(flight),
            work,
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
        if !this.flight.lock().wanted(cx.waker()) {
            let work = mem::replace(&mut this.work, Work::Nothing);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(work)));
            this.core.close(&this.flight);
            return Poll::Ready(());
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
        self.core.tasks.one_ended();
    }
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Drained {
    /// Nothing runs any more.
    All,
    /// Time was up while this many calls were still running.
    TimedOut(usize),
}

/// Counts the tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    running: AtomicUsize,
    idle: Notify,
}

impl Tasks {
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    fn one_ended(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.idle.notify_waiters();
        }
    }

    pub(crate) async fn drain(&self, clock: &dyn Clock, timeout: Duration) -> Drained {
        let mut time_up = clock.sleep_until(clock.now() + timeout);
        loop {
            let mut idle = pin!(self.idle.notified());
            // Registered before the count is read, or a task that ends in between is missed.
            idle.as_mut().enable();
            if self.running() == 0 {
                return Drained::All;
            }
            let time_is_up = poll_fn(|cx| match idle.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending => time_up.as_mut().poll(cx).map(|()| true),
            });
            if time_is_up.await {
                return match self.running() {
                    0 => Drained::All,
                    left => Drained::TimedOut(left),
                };
            }
        }
    }
}
