//! A disk that fails, and one that counts.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
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

#[tokio::test]
async fn what_changes_nothing_reads_only() {
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    done(&store, 1).await;
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    // A copy carries the `not_after` of the first.
    let request = ClaimRequest {
        key: key(2),
        nonce,
        fingerprint: None,
        settings: &settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(secs(2)),
    };
    let token = granted(store.claim(request).await).token;
    let guard = store.fence_store();
    let admitted = |token, nonce| {
        let guard = guard.clone();
        async move {
            tower_claim::FenceStore::admit(&guard, "r", token, nonce)
                .await
                .unwrap()
        }
    };
    let _ = admitted(token, nonce).await;

    let before = switch.flushes.load(Ordering::SeqCst);
    assert!(matches!(claim(&store, 1).await.unwrap(), Claimed::Done(_)));
    assert!(matches!(claim(&store, 2).await.unwrap(), Claimed::Busy(_)));
    let mine = store.claim(request).await.unwrap();
    assert!(matches!(mine, Claimed::Mine { .. }), "{mine:?}");
    store.peek(key(1)).await.unwrap();
    let _ = admitted(token, nonce).await;
    let stale = admitted(Token::new(1).unwrap(), nonce).await;
    assert!(matches!(stale, tower_claim::store::Admission::Stale { .. }));
    assert_eq!(
        switch.flushes.load(Ordering::SeqCst),
        before,
        "the disk was asked"
    );

    granted(claim(&store, 3).await);
    assert!(
        switch.flushes.load(Ordering::SeqCst) > before,
        "a grant is on the disk"
    );
}

#[tokio::test]
async fn calls_that_wait_for_the_disk_go_together() {
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    granted(claim(&store, 0).await);
    let one = switch.flushes.load(Ordering::SeqCst);
    granted(claim(&store, 1).await);
    let one = switch.flushes.load(Ordering::SeqCst) - one;
    let before = switch.flushes.load(Ordering::SeqCst);
    for claimed in join_all((100..300).map(|n| claim(&store, n))).await {
        granted(claimed);
    }
    let spent = switch.flushes.load(Ordering::SeqCst) - before;
    assert!(
        spent <= 10 * one,
        "{spent} flushes for 200 claims, {one} for one"
    );
}

/// An answer comes, calls work again once the disk does, and no yes is lost.
async fn recovers(fail: fn(&Switch) -> &AtomicBool) {
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    let kept = done(&store, 1).await;
    fail(&switch).store(true, Ordering::SeqCst);
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    let error = claim_as(&store, 2, nonce, &settings).await.unwrap_err();
    assert!(error.is_ambiguous(), "the commit failed: {error:?}");
    for n in 10..13 {
        let error = claim(&store, n).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
    }
    fail(&switch).store(false, Ordering::SeqCst);
    let deadline = std::time::Instant::now() + secs(20);
    let second = loop {
        match claim_as(&store, 2, nonce, &settings).await {
            Ok(answer) => break answer,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    // Granted now, or then: once.
    let ours = matches!(second, Claimed::Granted(_) | Claimed::Mine { .. });
    assert!(ours, "{second:?}");
    let replay = claim(&store, 1).await.unwrap();
    assert!(matches!(replay, Claimed::Done(done) if done.token == kept));
    done(&store, 3).await;
}

#[tokio::test]
async fn a_full_disk_is_doubt_and_calls_work_again_once_there_is_room() {
    recovers(|switch| &switch.full).await;
}

#[tokio::test]
async fn a_failed_flush_is_doubt_and_calls_work_again() {
    recovers(|switch| &switch.no_flush).await;
}

#[tokio::test]
async fn a_disk_that_hangs_is_doubt_after_the_call_timeout_and_a_full_queue_refuses() {
    let folder = folder();
    let builder = RedbStore::builder()
        .queue(2)
        .call_timeout(Duration::from_millis(500));
    let (store, switch) = store_on(builder, &folder);
    // Room enough: while the file grows, reads wait as well.
    large(&store, 0).await;
    let hung = Hang::begin(&switch);
    let error = claim(&store, 1).await.unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
    // One is in the writer's hands; two wait; the next is refused at once.
    let all = join_all((2..5).map(|n| claim(&store, n))).await;
    let refused = all.iter().filter(
        |answer| matches!(answer, Err(error @ StoreError::Unavailable(_)) if !error.is_ambiguous()),
    );
    assert_eq!(refused.count(), 1, "{all:?}");
    // Reads go on, and see nothing that is not on the disk.
    assert_eq!(store.peek(key(1)).await.unwrap(), None);
    drop(hung);
}

#[tokio::test]
async fn a_call_that_is_dropped_on_its_way_to_the_disk_is_applied_and_blocks_nobody() {
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    // Room enough: while the file grows, reads wait as well, and a call is not sent.
    large(&store, 0).await;
    let hung = Hang::begin(&switch);
    let calls = join_all((1..50).map(|n| claim(&store, n)));
    let left = tokio::time::timeout(Duration::from_millis(500), calls).await;
    assert!(left.is_err(), "answered before it is on the disk");
    drop(hung);
    done(&store, 100).await;
    let mut applied = 0;
    for n in 1..50 {
        match claim(&store, n).await.unwrap() {
            Claimed::Busy(_) => applied += 1,
            // It had not been sent yet.
            Claimed::Granted(_) => {}
            other => panic!("{n}: {other:?}"),
        }
    }
    assert!(applied > 0);
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

/// Finishes a key with 4 MiB: the file grows.
async fn large(store: &RedbStore, n: u32) {
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    let token = granted(claim_as(store, n, nonce, &settings).await).token;
    let owner = Owner {
        key: key(n),
        nonce,
        token,
    };
    let value = Value::Kept(vec![7; 4 << 20].into());
    let keep = KEEP;
    let finish = store.finish(FinishRequest { owner, value, keep }).await;
    assert_eq!(finish.unwrap(), Finish::Finished);
}

/// redb flushes under its own lock when it makes the file longer.
#[tokio::test]
async fn a_disk_that_hangs_while_the_file_grows_stops_no_runtime() {
    let folder = folder();
    let builder = RedbStore::builder().call_timeout(Duration::from_millis(50));
    let (store, switch) = store_on(builder, &folder);
    let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
    let token = granted(claim_as(&store, 1, nonce, &settings).await).token;
    let owner = Owner {
        key: key(1),
        nonce,
        token,
    };
    let (began, hung) = (std::time::Instant::now(), Hang::begin(&switch));
    let heals = std::thread::spawn(move || {
        std::thread::sleep(secs(5));
        drop(hung);
    });
    let value = Value::Kept(vec![7; 4 << 20].into());
    let keep = KEEP;
    let finish = store.finish(FinishRequest { owner, value, keep }).await;
    assert!(finish.unwrap_err().is_ambiguous());
    for n in 0..40 {
        if let Err(error) = store.peek(key(n)).await {
            assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        }
    }
    assert!(began.elapsed() < secs(4), "the runtime stood still");
    heals.join().unwrap();
}

/// Kills by signal leave the page cache; this leaves each prefix of what was written.
#[tokio::test]
async fn a_crash_at_any_write_of_a_new_file_leaves_one_that_opens() {
    let mut finished = 0;
    for writes in 0.. {
        let folder = folder();
        let path = folder.path().join("claims");
        let switch = Arc::new(Switch::default());
        switch.dies_after.store(writes, Ordering::SeqCst);
        let disk = TestDisk {
            path: path.clone(),
            switch: Arc::clone(&switch),
        };
        let mut token = None;
        if let Ok(store) = RedbStore::builder().open_on(Box::new(disk)) {
            let (nonce, settings) = (Nonce::draw(&OsEntropy), terms(LapsePolicy::TakeOver));
            if let Ok(Claimed::Granted(grant)) = claim_as(&store, 1, nonce, &settings).await {
                let owner = Owner {
                    key: key(1),
                    nonce,
                    token: grant.token,
                };
                token = finish(&store, owner).await.ok().map(|_| grant.token);
            }
            store.close().await;
        }
        let store = RedbStore::open(&path).unwrap_or_else(|error| panic!("{writes}: {error:?}"));
        if let Some(token) = token {
            let kept = claim(&store, 1).await.unwrap();
            assert!(
                matches!(&kept, Claimed::Done(done) if done.token == token),
                "{writes}: {kept:?}"
            );
            finished += 1;
        }
        store.close().await;
        if finished > 3 {
            assert!(writes > 10, "only {writes} crashes were tried");
            return;
        }
    }
}

#[tokio::test]
async fn a_file_that_another_process_had_meanwhile_is_let_go_for_good() {
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    done(&store, 1).await;
    switch.full.store(true, Ordering::SeqCst);
    claim(&store, 2).await.unwrap_err();
    // The disk fails here only; the other process is quick.
    let deadline = std::time::Instant::now() + secs(20);
    let path = folder.path().join("claims");
    let other = loop {
        match RedbStore::builder().process([2; 16]).open(&path) {
            Ok(other) => break other,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    other.close().await;
    switch.full.store(false, Ordering::SeqCst);
    while !claim(&store, 3)
        .await
        .unwrap_err()
        .to_string()
        .contains("unavailable")
        || !store.inner.file.is_lost()
    {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let opened = switch.opened.load(Ordering::SeqCst);
    for _ in 0..3 {
        let error = claim(&store, 3).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    }
    assert_eq!(switch.opened.load(Ordering::SeqCst), opened);
    RedbStore::builder().process([2; 16]).open(&path).unwrap();
}
