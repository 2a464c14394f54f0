//! The open file: read at any time, written by one, opened anew after an error of the disk.

use std::fmt::Debug;
use std::fs::{self, File as StdFile};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use redb::{Database, DatabaseError, ReadTransaction, ReadableDatabase};
use tower_claim::{Entropy, OsEntropy, StoreError};

use crate::error::{Failure, OpenError, Trouble};
use crate::meta::{self, Process, Runs};
use crate::time::{Seen, Time};
use crate::{book, fence};

/// Where the bytes lie.
pub(crate) trait Disk: Debug + Send + Sync + 'static {
    /// Opens the database; makes it where there is none and `may_create`.
    fn open(&self, redb: &redb::Builder, may_create: bool) -> Result<Database, DatabaseError>;
}

/// A file of the file system.
#[derive(Debug)]
pub(crate) struct OnPath(pub(crate) PathBuf);

impl Disk for OnPath {
    fn open(&self, redb: &redb::Builder, may_create: bool) -> Result<Database, DatabaseError> {
        if !may_create {
            return redb.open(&self.0);
        }
        let database = redb.create(&self.0)?;
        // A new name in a folder is safe only once the folder is.
        sync_folder(&self.0)?;
        Ok(database)
    }
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let path = fs::canonicalize(path)?;
    path.parent()
        .map_or(Ok(()), |folder| StdFile::open(folder)?.sync_all())
}

/// Tells this process from any other.
pub(crate) fn this_process() -> Process {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    *PROCESS.get_or_init(|| {
        let mut process = Process::default();
        OsEntropy.fill(&mut process);
        process
    })
}

#[derive(Debug)]
pub(crate) struct File {
    disk: Box<dyn Disk>,
    cache: usize,
    process: Process,
    runs: Runs,
    database: RwLock<Option<Database>>,
    /// An operation failed: redb wants the file opened anew.
    broken: AtomicBool,
}

impl File {
    /// Opens the file and enters this process into it.
    pub(crate) fn open(
        disk: Box<dyn Disk>,
        cache: usize,
        process: Process,
        resume: impl FnOnce(Option<&Seen>) -> Time,
    ) -> Result<(Self, Time), OpenError> {
        let database = open(disk.as_ref(), cache, true)?;
        let mut meta = read_meta(&database)?;
        let time = resume(meta.seen.as_ref());
        let seen = time.seen();
        meta.runs.enter(process, seen.time);
        let entered = || -> Result<(), redb::Error> {
            let txn = database.begin_write()?;
            book::create(&txn)?;
            fence::create(&txn)?;
            meta::write(&txn, &seen, &meta.runs)?;
            Ok(txn.commit()?)
        };
        guarded(entered)
            .map_err(OpenError::storage)?
            .map_err(OpenError::storage)?;
        let file = Self {
            disk,
            cache,
            process,
            runs: meta.runs,
            database: RwLock::new(Some(database)),
            broken: AtomicBool::new(false),
        };
        Ok((file, time))
    }

    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Reads what is committed. Never waits for a writer.
    pub(crate) fn read<R>(
        &self,
        look: impl FnOnce(&ReadTransaction) -> Result<R, Trouble>,
    ) -> Result<R, StoreError> {
        let database = match self.database.try_read() {
            Ok(database) => database,
            Err(TryLockError::Poisoned(database)) => database.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::unavailable("the file is being opened anew"));
            }
        };
        let Some(database) = &*database else {
            return Err(StoreError::unavailable(NOT_OPEN));
        };
        let read = || look(&database.begin_read()?);
        match guarded(read) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Trouble::Call(error))) => Err(error),
            Ok(Err(Trouble::Storage(error))) => {
                self.broken.store(true, Ordering::Release);
                Err(StoreError::unavailable(error))
            }
            Err(panicked) => {
                self.broken.store(true, Ordering::Release);
                Err(StoreError::unavailable(panicked))
            }
        }
    }

    /// For the writer.
    pub(crate) fn database(&self) -> RwLockReadGuard<'_, Option<Database>> {
        self.database.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    pub(crate) fn tell_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Opens the file anew where it must be. For the writer.
    pub(crate) fn mend(&self) -> Result<(), Failure> {
        if !self.is_broken() {
            return Ok(());
        }
        let mut database = self.database_mut();
        // The lock on the file goes with it.
        *database = None;
        let opened = open(self.disk.as_ref(), self.cache, false)
            .and_then(|opened| Ok((read_meta(&opened)?, opened)));
        match opened {
            Ok((meta, opened)) if meta.runs.is_last(self.process) => {
                *database = Some(opened);
                self.broken.store(false, Ordering::Release);
                Ok(())
            }
            Ok(_) => Err(Failure::not_applied(
                "another process had the file since: open a new store",
            )),
            Err(error) => Err(Failure::not_applied(error)),
        }
    }

    /// Lets the file go.
    pub(crate) fn close(&self) {
        *self.database_mut() = None;
    }

    fn database_mut(&self) -> RwLockWriteGuard<'_, Option<Database>> {
        self.database
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) const NOT_OPEN: &str = "the file is not open: closed, or the disk failed";

fn open(disk: &dyn Disk, cache: usize, may_create: bool) -> Result<Database, OpenError> {
    let mut redb = redb::Builder::new();
    redb.set_cache_size(cache);
    redb.set_repair_callback(|_| tracing::debug!("the file was not closed: redb repairs it"));
    let opened = guarded(|| disk.open(&redb, may_create)).map_err(OpenError::storage)?;
    Ok(opened?)
}

fn read_meta(database: &Database) -> Result<meta::Meta, OpenError> {
    let read = || meta::read(&database.begin_read().map_err(OpenError::storage)?);
    guarded(read).map_err(OpenError::storage)?
}

/// redb panics on some damaged files; here that is an error like any other.
pub(crate) fn guarded<R>(work: impl FnOnce() -> R) -> Result<R, &'static str> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the file is damaged: redb panicked")
}
