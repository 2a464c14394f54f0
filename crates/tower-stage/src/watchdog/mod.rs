//! The watchdog: tells of requests that are stuck, from a thread of its own.

mod watch;

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use watch::Watch;
pub use watch::{Motion, Report};

use crate::{Board, Filter, Stage};

/// Tells of requests that are stuck. Made by [`Board::watchdog`]; stops when it is dropped.
///
/// It looks at the table from a thread of its own, since a task of the runtime cannot tell that the
/// runtime is blocked. It only tells, and never cancels. A request has no timer of its own.
#[must_use = "a watchdog stops when it is dropped"]
#[derive(Debug)]
pub struct Watchdog {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Bell {
    stopped: Mutex<bool>,
    rung: Condvar,
}

impl Board {
    /// Starts a watchdog that looks at the board this often, and tells what it finds. A row is told of when
    /// it is stuck, then at 2, 4, 8 times its threshold; ten rows a look, the rest as a number.
    ///
    /// `tell` runs on the watchdog's thread; while it runs nothing is looked at.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_stage::Board;
    ///
    /// let board = Board::new();
    /// let watchdog = board.watchdog(Duration::from_secs(1), |report| {
    ///     eprintln!("{report}"); // or `tracing::warn!(%report)`
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `every` is zero, or the system gives no thread.
    pub fn watchdog<F>(&self, every: Duration, mut tell: F) -> io::Result<Watchdog>
    where
        F: FnMut(&Report) + Send + 'static,
    {
        if every.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a watchdog that looks every 0 s would do nothing else; name a duration",
            ));
        }
        let board = self.clone();
        let bell = Arc::new(Bell::default());
        let wakes = bell.clone();
        let thread = thread::Builder::new()
            .name("stage-watchdog".to_owned())
            .spawn(move || {
                let mut watch = Watch::new(every);
                while !wakes.stops_within(every) {
                    board.look(&mut watch).iter().for_each(&mut tell);
                }
            })?;
        Ok(Watchdog {
            bell,
            thread: Some(thread),
        })
    }

    fn look(&self, watch: &mut Watch) -> Vec<Report> {
        let rows = self.live(&Filter::new().limit(usize::MAX));
        watch.look(self.now(), rows, |stage: Stage| self.threshold(stage))
    }
}

impl Bell {
    fn stops_within(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .rung
            .wait_timeout_while(stopped, time, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self
            .bell
            .stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.rung.notify_all();
        // A drop from within `tell` would wait for itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
