//! A disk that fails, hangs and counts, as the test tells it.

mod counts;
mod fails;
mod hangs;
mod power;

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, Database, DatabaseError, ReadOnlyDatabase, StorageBackend};

use super::*;
use crate::OpenError;
use crate::file::{Disk, make_whole};

/// What the test does to the disk.
#[derive(Debug)]
struct Switch {
    /// No write goes through.
    full: AtomicBool,
    /// No flush goes through.
    no_flush: AtomicBool,
    /// After so many more writes and flushes nothing goes through: as if the process were killed there.
    dies_after: AtomicU64,
    opened: AtomicU64,
    /// Each flush waits for the end of this.
    hangs: AtomicBool,
    /// A flush began to wait.
    hung: AtomicBool,
    flushes: AtomicU64,
}

impl Default for Switch {
    fn default() -> Self {
        Self {
            full: AtomicBool::new(false),
            no_flush: AtomicBool::new(false),
            dies_after: AtomicU64::new(u64::MAX),
            opened: AtomicU64::new(0),
            hangs: AtomicBool::new(false),
            hung: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
        }
    }
}

impl Switch {
    fn lives(&self) -> io::Result<()> {
        let lives = |left: u64| left.checked_sub(1);
        let order = Ordering::SeqCst;
        match self.dies_after.fetch_update(order, order, lives) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("dead")),
        }
    }
}

#[derive(Debug)]
struct TestDisk {
    path: PathBuf,
    switch: Arc<Switch>,
}

#[derive(Debug)]
struct Backend {
    file: FileBackend,
    switch: Arc<Switch>,
}

impl Disk for TestDisk {
    fn look(&self, _: &redb::Builder) -> Result<Option<ReadOnlyDatabase>, OpenError> {
        Ok(None)
    }

    fn open(&self, redb: &redb::Builder, may_create: bool) -> Result<Database, DatabaseError> {
        self.switch.opened.fetch_add(1, Ordering::SeqCst);
        let open = |path: &Path| {
            let mut open = OpenOptions::new();
            open.read(true).write(true).create(may_create);
            let file: File = open.open(path)?;
            redb.create_with_backend(Backend {
                file: FileBackend::new(file)?,
                switch: Arc::clone(&self.switch),
            })
        };
        if may_create && !self.path.exists() {
            make_whole(&self.path, open)?;
        }
        open(&self.path)
    }
}

fn no_room(full: &AtomicBool) -> io::Result<()> {
    match full.load(Ordering::SeqCst) {
        true => Err(io::Error::from(io::ErrorKind::StorageFull)),
        false => Ok(()),
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.switch.lives()?;
        no_room(&self.switch.full)?;
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.switch.lives()?;
        while self.switch.hangs.load(Ordering::SeqCst) {
            self.switch.hung.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.switch.flushes.fetch_add(1, Ordering::SeqCst);
        no_room(&self.switch.no_flush)?;
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.switch.lives()?;
        no_room(&self.switch.full)?;
        self.file.write(offset, data)
    }
    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
    fn try_lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(from, to)
    }
    fn try_lock_shared_range(
        &self,
        from: Bound<u64>,
        to: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(from, to)
    }
    fn lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(from, to)
    }
    fn lock_shared_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(from, to)
    }
    fn unlock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(from, to)
    }
    fn query_lock_range(&self, from: Bound<u64>, to: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(from, to)
    }
}

fn store_on(builder: RedbStoreBuilder, folder: &TempDir) -> (RedbStore, Arc<Switch>) {
    let switch = Arc::new(Switch::default());
    let disk = TestDisk {
        path: folder.path().join("claims"),
        switch: Arc::clone(&switch),
    };
    (builder.open_on(Box::new(disk)).unwrap(), switch)
}

/// Each flush waits, until this is dropped.
struct Hang(Arc<Switch>);

impl Hang {
    fn begin(switch: &Arc<Switch>) -> Self {
        switch.hangs.store(true, Ordering::SeqCst);
        Self(Arc::clone(switch))
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        self.0.hangs.store(false, Ordering::SeqCst);
    }
}
