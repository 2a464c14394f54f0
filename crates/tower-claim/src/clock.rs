//! The one way to read the time and to wait.

use std::fmt::Debug;
use std::ops::{Add, Sub};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;

/// An instant of a [`Clock`], in nanoseconds since a start the clock chose. Instants of two clocks do
/// not compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(Duration);

impl Moment {
    /// The instant this long after the clock's start.
    pub const fn since_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Time since the clock's start.
    pub const fn elapsed(self) -> Duration {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not.
    #[must_use]
    pub const fn saturating_since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(by))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, by: Duration) -> Moment {
        Moment(self.0.saturating_sub(by))
    }
}

/// Everything in this family that reads the time or waits does so through a clock, so that a test can
/// drive it by hand. Must not panic, nor block: it is read in `Drop`, and under locks.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Now. Never goes back. Should count time in suspend: a lease goes on while the machine sleeps.
    fn now(&self) -> Moment;

    /// Wall time since the Unix epoch. The in-memory store reads it for the clock part of its tokens, and layers
    /// where a business key may be a time or belongs to a window of time; no deadline depends on it.
    fn unix_time(&self) -> Duration;

    /// Ready at `at` or later, never before. Dropping the future leaves nothing behind.
    ///
    /// A timer may fire late (Linux timers stand still in suspend): who holds a claim compares clocks,
    /// and does not rely on having been woken.
    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()>;
}

/// The machine's clock: `CLOCK_BOOTTIME` on Linux and Android, which counts suspend;
/// [`std::time::Instant`] elsewhere, which may not. The default.
///
/// `sleep_until` needs a tokio runtime with its timer enabled.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment(boot_time())
    }

    fn unix_time(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let left = at.saturating_since(SystemClock.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left).await;
            }
        })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_time() -> Duration {
    std_time()
}

#[cfg_attr(any(target_os = "linux", target_os = "android"), allow(dead_code))]
fn std_time() -> Duration {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}

/// Tokio's clock, which a test can pause (`#[tokio::test(start_paused = true)]`). It does not count
/// suspend: for tests only.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: tokio::time::Instant,
    unix_start: Duration,
}

#[cfg(any(test, feature = "testing"))]
impl TokioClock {
    /// A clock that starts now.
    #[expect(clippy::new_without_default, reason = "reads the time")]
    pub fn new() -> Self {
        Self {
            start: tokio::time::Instant::now(),
            unix_start: SystemClock.unix_time(),
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment(self.start.elapsed())
    }

    fn unix_time(&self) -> Duration {
        self.unix_start + self.start.elapsed()
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep_until(self.start + at.elapsed()))
    }
}
