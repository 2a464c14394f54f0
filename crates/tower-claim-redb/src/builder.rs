//! The store's settings.

use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::Semaphore;
use tower_claim::engine::Bells;
use tower_claim::{Clock, ConfigError, SystemClock};

use crate::calls::Inner;
use crate::error::OpenError;
use crate::file::{Disk, File, OnPath, this_process};
use crate::meta::Process;
use crate::store::RedbStore;
use crate::time::{Boot, Time, boot_of_the_system};
use crate::writer::Writer;

/// Reads at the same moment, at most.
const READERS: usize = 32;
/// Calls in a queue, at most.
const MOST_WAITING: usize = 1 << 20;

/// Builds a [`RedbStore`]. Made by [`RedbStore::builder`].
#[derive(Debug, Clone)]
pub struct RedbStoreBuilder {
    clock: Arc<dyn Clock>,
    boot: Boot,
    process: Process,
    queue: usize,
    cache: usize,
    call_timeout: Duration,
    poll: Duration,
    guard_marks: u64,
}

impl Default for RedbStoreBuilder {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            boot: boot_of_the_system(),
            process: this_process(),
            queue: 4096,
            cache: 64 << 20,
            call_timeout: Duration::from_secs(2),
            poll: Duration::from_secs(1),
            guard_marks: 1_000_000,
        }
    }
}

impl RedbStoreBuilder {
    /// The clock that judges every span. Default: [`SystemClock`]. With another one, time between two
    /// openings is counted by its [`unix_time`](Clock::unix_time).
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self.boot = Boot::default();
        self
    }

    /// Calls that wait for the writer, at most; one more is refused as
    /// [`Unavailable`](tower_claim::StoreError::Unavailable). 1 to 1,048,576; default: 4096.
    #[must_use]
    pub fn queue(mut self, calls: usize) -> Self {
        self.queue = calls;
        self
    }

    /// Bytes of the file that are kept in memory. Default: 64 MiB.
    #[must_use]
    pub fn cache(mut self, bytes: usize) -> Self {
        self.cache = bytes;
        self
    }

    /// How long a call waits for the disk, once to read and once to write; past it a change may have been applied
    /// ([`Ambiguous`](tower_claim::StoreError::Ambiguous)). Default: 2 s.
    #[must_use]
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = limit;
        self
    }

    /// How often [`watch`](tower_claim::ClaimStore::watch) looks when nothing wakes it. Default: 1 s.
    #[must_use]
    pub fn poll(mut self, step: Duration) -> Self {
        self.poll = step;
        self
    }

    /// Resources whose marks a [guard](crate::RedbFenceStore) of this store keeps one by one; beyond them the lowest
    /// fold into a floor. At least 1; default: 1,000,000 (32 bytes and twice the resource's name each).
    #[must_use]
    pub fn guard_marks(mut self, most: u64) -> Self {
        self.guard_marks = most;
        self
    }

    #[cfg(test)]
    pub(crate) fn process(mut self, process: Process) -> Self {
        self.process = process;
        self
    }

    /// Opens the file, or makes it where there is none (in a folder that is there). After a crash this
    /// reads the whole file once.
    ///
    /// # Errors
    ///
    /// [`OpenError`], in a line that names the path and says the mend. A file that is not one of claims, or one
    /// of a later format, is not touched (unless it is redb's and was not closed: then redb repairs it first).
    pub fn open(self, path: impl AsRef<Path>) -> Result<RedbStore, OpenError> {
        let path = path.as_ref();
        let opened = self.open_on(Box::new(OnPath(path.to_owned())));
        opened.map_err(|error| match error {
            error @ OpenError::Config(_) => error,
            error => OpenError::At {
                path: path.to_owned(),
                error: Box::new(error),
            },
        })
    }

    pub(crate) fn open_on(self, disk: Box<dyn Disk>) -> Result<RedbStore, OpenError> {
        self.check()?;
        let (clock, boot) = (self.clock, self.boot);
        let resume = |last: Option<&_>| Time::resume(clock, boot, last);
        let (file, time) = File::open(disk, self.cache, self.process, resume)?;
        let (orders, taken) = sync_channel(self.queue);
        let inner = Inner {
            file: Arc::new(file),
            time: Arc::new(time),
            bells: Arc::new(Bells::new()),
            orders,
            call_timeout: self.call_timeout,
            poll: self.poll,
            guard_marks: self.guard_marks,
            readers: Arc::new(Semaphore::new(READERS)),
        };
        start(&inner, taken)?;
        Ok(RedbStore {
            inner: Arc::new(inner),
        })
    }

    fn check(&self) -> Result<(), ConfigError> {
        // Its room is taken at once.
        if !(1..=MOST_WAITING).contains(&self.queue) {
            return Err(ConfigError::new("queue", "1 to 1,048,576"));
        }
        let least = Duration::from_millis(1);
        if self.call_timeout < least {
            return Err(ConfigError::new("call_timeout", "at least 1 ms"));
        }
        if self.poll < least {
            return Err(ConfigError::new("poll", "at least 1 ms"));
        }
        if self.guard_marks == 0 {
            return Err(ConfigError::new("guard_marks", "at least 1"));
        }
        Ok(())
    }
}

fn start(inner: &Inner, orders: mpsc::Receiver<crate::writer::Order>) -> Result<(), OpenError> {
    let writer = Writer {
        file: Arc::clone(&inner.file),
        time: Arc::clone(&inner.time),
        bells: Arc::clone(&inner.bells),
        orders,
        // It looks for what became due while nobody had the file.
        due: Some(tower_claim::store::StoreTime::default()),
        rests_until: None,
    };
    let thread = thread::Builder::new().name("tower-claim-redb".to_owned());
    thread
        .spawn(move || writer.run())
        .map(drop)
        .map_err(OpenError::storage)
}
