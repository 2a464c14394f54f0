//! Work that must outlive its caller.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, oneshot};

use crate::wait::within;
use crate::{Clock, Code, Refusal, SystemClock};

/// Takes something of the caller's task, for instance a task-local, along into detached work.
pub trait Carry: Send + Sync + 'static {
    /// Called on the caller's task: reads what it carries, and answers `work` wrapped in it.
    fn carry(&self, work: BoxFuture<'static, ()>) -> BoxFuture<'static, ()>;
}

/// Spawns work that must go on when its caller is gone: handlers that must finish, flights, releases.
/// Clones share the count; keep one per layer value.
///
/// The work carries the caller's tracing span (feature `tracing`) and what each [`Carry`] takes along. It
/// is counted until it is over, so that a shutdown can wait for it. A panic in it reaches whoever holds
/// the [`Running`]. What it does not do: survive its runtime.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tower_claim::Detached;
///
/// let detached = Detached::new();
/// let running = detached.spawn(async { 6 * 7 })?;
/// assert_eq!(running.await?, 42);
/// assert!(detached.drain(Duration::from_secs(1)).await);
/// assert!(detached.spawn(async {}).is_err(), "shutting down");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Detached {
    count: Arc<Count>,
    carries: Arc<[Arc<dyn Carry>]>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Count {
    running: AtomicUsize,
    closed: AtomicBool,
    idle: Notify,
}

/// Why work was not spawned. It was dropped unpolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotSpawned {
    /// The service is shutting down.
    ShuttingDown,
    /// There is no tokio runtime here to spawn on.
    NoRuntime,
}

impl fmt::Display for NotSpawned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotSpawned::ShuttingDown => "the service is shutting down: no new work",
            NotSpawned::NoRuntime => "detached work needs a tokio runtime: call the service on one",
        })
    }
}

impl std::error::Error for NotSpawned {}

impl From<NotSpawned> for Refusal {
    fn from(why: NotSpawned) -> Self {
        match why {
            NotSpawned::ShuttingDown => Refusal::new(Code::ShuttingDown),
            NotSpawned::NoRuntime => Refusal::new(Code::Overloaded).with_detail(why.to_string()),
        }
    }
}

/// Why detached work has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutShort {
    /// It panicked.
    Panicked,
    /// Its runtime shut down.
    ShutDown,
}

impl fmt::Display for CutShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CutShort::Panicked => "the detached work panicked",
            CutShort::ShutDown => "the runtime shut down under the detached work",
        })
    }
}

impl std::error::Error for CutShort {}

impl From<CutShort> for Refusal {
    fn from(why: CutShort) -> Self {
        Refusal::new(match why {
            CutShort::Panicked => Code::HandlerPanicked,
            CutShort::ShutDown => Code::ShuttingDown,
        })
    }
}

/// Detached work under way: resolves to its result. Dropping this does not stop the work.
#[must_use = "the work goes on without it, but its result and its panic are lost"]
pub struct Running<T> {
    result: oneshot::Receiver<Result<T, CutShort>>,
}

impl<T> Future for Running<T> {
    type Output = Result<T, CutShort>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result)
            .poll(cx)
            .map(|result| result.unwrap_or(Err(CutShort::ShutDown)))
    }
}

impl<T> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// A place for one piece of work that is to be spawned: a drain waits for it already. Made by
/// [`Detached::reserve`], and given back when it is dropped.
#[must_use = "dropped, the place is given back"]
pub struct Place {
    counted: Counted,
    runtime: tokio::runtime::Handle,
    carries: Arc<[Arc<dyn Carry>]>,
}

impl Place {
    /// Spawns `work` on the runtime that the place was reserved on.
    pub fn spawn<F>(self, work: F) -> Running<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let Self {
            counted,
            runtime,
            carries,
        } = self;
        let (tell, result) = oneshot::channel();
        let work = async move {
            let _counted = counted;
            // The work is dropped with its panic: nobody sees what it left half done.
            let result = AssertUnwindSafe(work).catch_unwind().await;
            let _ = tell.send(result.map_err(|_: Box<dyn Any + Send>| CutShort::Panicked));
        };
        #[cfg(feature = "tracing")]
        let work = tracing::Instrument::in_current_span(work);
        if carries.is_empty() {
            runtime.spawn(work);
        } else {
            let work: BoxFuture<'static, ()> = Box::pin(work);
            runtime.spawn(carries.iter().fold(work, |work, c| c.carry(work)));
        }
        Running { result }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

/// Counts one piece of work until it is gone, however it ends.
struct Counted(Arc<Count>);

impl Counted {
    fn in_(count: &Arc<Count>) -> Result<Self, NotSpawned> {
        // Counted first: a drain that closes right after sees this one, or this sees the close.
        count.running.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(Arc::clone(count));
        if count.closed.load(Ordering::SeqCst) {
            return Err(NotSpawned::ShuttingDown);
        }
        Ok(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Detached {
    /// Nothing runs, nothing is carried but the span.
    pub fn new() -> Self {
        Self {
            count: Arc::default(),
            carries: Arc::new([]),
            clock: Arc::new(SystemClock),
        }
    }

    /// Takes one more thing of the caller's task along. Work spawned by clones made before is not
    /// affected.
    #[must_use]
    pub fn carrying(mut self, carry: impl Carry) -> Self {
        let one_more: Arc<dyn Carry> = Arc::new(carry);
        self.carries = self.carries.iter().cloned().chain([one_more]).collect();
        self
    }

    /// The clock that [`drain`](Self::drain) goes by. Default: [`SystemClock`].
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Spawns `work` on the current runtime.
    ///
    /// # Errors
    ///
    /// [`NotSpawned`]: shutting down, or no runtime here.
    pub fn spawn<F>(&self, work: F) -> Result<Running<F::Output>, NotSpawned>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Ok(self.reserve()?.spawn(work))
    }

    /// A place for work that may have to be spawned in a moment, for instance when a claim is granted: a
    /// drain waits for it from now on, so nothing can begin behind its back.
    ///
    /// # Errors
    ///
    /// [`NotSpawned`]: shutting down, or no runtime here.
    pub fn reserve(&self) -> Result<Place, NotSpawned> {
        Ok(Place {
            counted: Counted::in_(&self.count)?,
            runtime: tokio::runtime::Handle::try_current().map_err(|_| NotSpawned::NoRuntime)?,
            carries: Arc::clone(&self.carries),
        })
    }

    /// How many pieces of work are under way, reserved places included.
    pub fn running(&self) -> usize {
        self.count.running.load(Ordering::SeqCst)
    }

    /// Refuses new work from now on.
    pub fn close(&self) {
        self.count.closed.store(true, Ordering::SeqCst);
    }

    /// Whether new work is refused.
    pub fn is_closed(&self) -> bool {
        self.count.closed.load(Ordering::SeqCst)
    }

    /// Refuses new work and waits for what runs. `false` when `timeout` passes first: the rest goes on.
    ///
    /// # Cancellation
    ///
    /// New work stays refused; nothing else happens.
    pub async fn drain(&self, timeout: Duration) -> bool {
        self.close();
        let idle = async {
            loop {
                let mut idle = pin!(self.count.idle.notified());
                idle.as_mut().enable();
                if self.running() == 0 {
                    return;
                }
                idle.await;
            }
        };
        within(&*self.clock, self.clock.now() + timeout, idle)
            .await
            .is_some()
    }
}

impl Default for Detached {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached")
            .field("running", &self.running())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
