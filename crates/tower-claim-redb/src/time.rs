//! The file's time: it goes on over restarts, and never back.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower_claim::engine::At;
use tower_claim::store::StoreTime;
use tower_claim::{Clock, Moment};

/// The kernel's name of the machine's present boot.
pub(crate) type Boot = [u8; 16];

/// The clocks at one instant, beside the file's own. The last one is kept in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    /// Microseconds since the file was made.
    pub(crate) time: StoreTime,
    /// Wall time, in microseconds since the Unix epoch.
    pub(crate) unix: u64,
    /// The highest wall time ever seen, in milliseconds: for tokens.
    pub(crate) highest_unix_ms: u64,
    /// Since the boot, in microseconds.
    pub(crate) since_boot: u64,
    /// Zero where it is not known.
    pub(crate) boot: Boot,
}

impl Seen {
    /// What time it is by the file, now that the clocks show `now`.
    ///
    /// Within one boot the boot's clock counts, whatever was done to the wall clock. Over a reboot only
    /// the wall clock tells how long the machine was off: set back it counts for nothing, and set ahead
    /// it cannot be told from a long rest.
    pub(crate) fn resume(&self, now: &Seen) -> StoreTime {
        let same_boot = self.boot != Boot::default() && self.boot == now.boot;
        let passed = match now.since_boot.checked_sub(self.since_boot) {
            Some(passed) if same_boot => passed,
            _ => now.unix.saturating_sub(self.unix),
        };
        // After all that was written: "granted before this opening" must have one meaning.
        self.time
            .saturating_add(Duration::from_micros(passed.max(1)))
    }
}

/// Reads the clocks.
#[derive(Debug)]
pub(crate) struct Time {
    clock: Arc<dyn Clock>,
    boot: Boot,
    /// The file's time when this opening began, and the clock's.
    opened: StoreTime,
    started: Moment,
    highest_unix_ms: AtomicU64,
}

impl Time {
    /// Goes on from what was seen last; from zero in a new file.
    pub(crate) fn resume(clock: Arc<dyn Clock>, boot: Boot, last: Option<&Seen>) -> Self {
        let started = clock.now();
        let time = Self {
            clock,
            boot,
            opened: StoreTime::default(),
            started,
            highest_unix_ms: AtomicU64::new(last.map_or(0, |last| last.highest_unix_ms)),
        };
        let opened = last.map_or(time.opened, |last| last.resume(&time.seen()));
        Self { opened, ..time }
    }

    pub(crate) fn now(&self) -> StoreTime {
        let passed = self.clock.now().saturating_since(self.started);
        self.opened.saturating_add(passed)
    }

    pub(crate) fn at(&self) -> At {
        let read = u64::try_from(self.clock.unix_time().as_millis()).unwrap_or(u64::MAX);
        let seen = self.highest_unix_ms.fetch_max(read, Ordering::Relaxed);
        At {
            now: self.now(),
            unix_ms: seen.max(read),
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let At { now, unix_ms } = self.at();
        Seen {
            time: now,
            unix: micros(self.clock.unix_time()),
            highest_unix_ms: unix_ms,
            since_boot: micros(self.clock.now().elapsed()),
            boot: self.boot,
        }
    }
}

/// The present boot, where the system's clock counts from it: Linux and Android.
pub(crate) fn boot_of_the_system() -> Boot {
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return Boot::default();
    }
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&digits, 16).unwrap_or_default();
    boot.to_be_bytes()
}
