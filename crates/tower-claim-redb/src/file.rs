//! The open file: read at any time, written by one, opened anew after an error of the disk.

use std::fmt::Debug;
use std::fs::{self, File as StdFile};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use redb::{Database, DatabaseError, ReadOnlyDatabase, ReadTransaction, ReadableDatabase};
use tower_claim::{Entropy, Nonce, OsEntropy, StoreError};

use crate::error::{Failure, OpenError, Trouble};
use crate::meta::{self, Process, Runs};
use crate::time::{Seen, Time};
use crate::{book, marks};

/// Where the bytes lie.
pub(crate) trait Disk: Debug + Send + Sync + 'static {
    /// Opens what lies there without a change to it. `None` where there is nothing, or where only redb's repair,
    /// which writes, can tell what it is.
    fn look(&self, redb: &redb::Builder) -> Result<Option<ReadOnlyDatabase>, OpenError>;
    /// Opens the database; makes it where there is none and `may_create`.
    fn open(&self, redb: &redb::Builder, may_create: bool) -> Result<Database, DatabaseError>;
}

/// A file of the file system.
#[derive(Debug)]
pub(crate) struct OnPath(pub(crate) PathBuf);

impl Disk for OnPath {
    fn look(&self, redb: &redb::Builder) -> Result<Option<ReadOnlyDatabase>, OpenError> {
        match fs::metadata(&self.0) {
            // redb would write to a device.
            Ok(found) if !found.is_file() => return Err(OpenError::NotAFile),
            Ok(found) if found.len() > 0 => {}
            _ => return Ok(None),
        }
        match redb.open_read_only(&self.0) {
            Ok(database) => Ok(Some(database)),
            Err(DatabaseError::RepairAborted) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn open(&self, redb: &redb::Builder, may_create: bool) -> Result<Database, DatabaseError> {
        if !may_create {
            return redb.open(&self.0);
        }
        if !self.0.exists() {
            make_whole(&self.0, |draft| redb.create(draft))?;
        }
        let database = redb.create(&self.0)?;
        // A new name in a folder is safe only once the folder is.
        sync_folder(&self.0)?;
        Ok(database)
    }
}

/// Makes a new file under another name, and gives it its own once it is whole. (Half made by a process that was
/// killed it is no redb file, and would be refused for good.) A link takes no name that is taken: two who make
/// the file at the same moment get one. Where links cannot be had, whoever opens the file makes it.
///
/// A kill may leave the draft, which nobody reads.
pub(crate) fn make_whole(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<Database, DatabaseError>,
) -> Result<(), DatabaseError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.new", Nonce::draw(&OsEntropy)));
    let draft = PathBuf::from(draft);
    let made = make(&draft).map(drop);
    if made.is_ok() {
        let _ = fs::hard_link(&draft, path);
    }
    let _ = fs::remove_file(&draft);
    made
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
    /// Another process had it while it was not open here. Its holds are over, so it stays closed.
    lost: AtomicBool,
}

impl File {
    /// Opens the file and enters this process into it.
    pub(crate) fn open(
        disk: Box<dyn Disk>,
        cache: usize,
        process: Process,
        resume: impl FnOnce(Option<&Seen>) -> Time,
    ) -> Result<(Self, Time), OpenError> {
        look(disk.as_ref(), cache)?;
        let database = open(disk.as_ref(), cache, true)?;
        let mut meta = read_meta(&database)?;
        let time = resume(meta.seen.as_ref());
        let seen = time.seen();
        meta.runs.enter(process, seen.time);
        let entered = || -> Result<(), redb::Error> {
            let txn = database.begin_write()?;
            book::create(&txn)?;
            marks::create(&txn)?;
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
            lost: AtomicBool::new(false),
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

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether that is news.
    pub(crate) fn tell_broken(&self) -> bool {
        !self.broken.swap(true, Ordering::AcqRel)
    }

    /// Opens the file anew where it must be. For the writer.
    pub(crate) fn mend(&self) -> Result<(), Failure> {
        if !self.is_broken() {
            return Ok(());
        }
        if self.is_lost() {
            return Err(Failure::not_applied(LOST));
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
            Ok((_, opened)) => {
                drop(opened);
                // It is let go for good: a file that is opened over and over would be in the other's way.
                self.lost.store(true, Ordering::Release);
                Err(Failure::not_applied(LOST))
            }
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
const LOST: &str = "another process had the file since the disk failed: open a new store";

fn settings(cache: usize) -> redb::Builder {
    let mut redb = redb::Builder::new();
    redb.set_cache_size(cache);
    redb.set_repair_callback(|_| tracing::debug!("the file was not closed: redb repairs it"));
    redb
}

/// Refuses a file that is not ours before anything is written to it.
fn look(disk: &dyn Disk, cache: usize) -> Result<(), OpenError> {
    let found = guarded(|| disk.look(&settings(cache))).map_err(OpenError::storage)??;
    found.map_or(Ok(()), |database| read_meta(&database).map(drop))
}

fn open(disk: &dyn Disk, cache: usize, may_create: bool) -> Result<Database, OpenError> {
    let redb = settings(cache);
    let opened = guarded(|| disk.open(&redb, may_create)).map_err(OpenError::storage)?;
    Ok(opened?)
}

fn read_meta(database: &impl ReadableDatabase) -> Result<meta::Meta, OpenError> {
    let read = || meta::read(&database.begin_read().map_err(OpenError::storage)?);
    guarded(read).map_err(OpenError::storage)?
}

/// redb panics on some damaged files; here that is an error like any other.
pub(crate) fn guarded<R>(work: impl FnOnce() -> R) -> Result<R, &'static str> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the file is damaged: redb panicked")
}
