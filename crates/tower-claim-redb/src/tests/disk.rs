//! A disk that fails, and one that counts.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use redb::backends::FileBackend;
use redb::{BackendError, Database, DatabaseError, StorageBackend};

use super::*;
use crate::file::Disk;

/// What the test does to the disk.
#[derive(Debug, Default)]
struct Switch {
    /// No write goes through.
    full: AtomicBool,
    /// No flush goes through.
    no_flush: AtomicBool,
    /// Each flush waits for this.
    slow: std::sync::Mutex<()>,
    flushes: AtomicU64,
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
    fn open(&self, redb: &redb::Builder, may_create: bool) -> Result<Database, DatabaseError> {
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(may_create);
        let file: File = open.open(&self.path)?;
        redb.create_with_backend(Backend {
            file: FileBackend::new(file)?,
            switch: Arc::clone(&self.switch),
        })
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
        no_room(&self.switch.full)?;
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        drop(self.switch.slow.lock());
        self.switch.flushes.fetch_add(1, Ordering::SeqCst);
        no_room(&self.switch.no_flush)?;
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
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
    let token = granted(claim_as(&store, 2, nonce, &settings).await).token;
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
        .call_timeout(Duration::from_millis(50));
    let (store, switch) = store_on(builder, &folder);
    let hung = switch.slow.lock().unwrap();
    let error = claim(&store, 1).await.unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
    // One is in the writer's hands; two wait; the next is refused at once.
    let all = join_all((2..5).map(|n| claim(&store, n))).await;
    let refused = all.iter().filter(
        |answer| matches!(answer, Err(error @ StoreError::Unavailable(_)) if !error.is_ambiguous()),
    );
    assert_eq!(refused.count(), 1, "{all:?}");
    // Reads go on.
    assert_eq!(store.peek(key(9)).await.unwrap(), None);
    drop(hung);
}

#[tokio::test]
async fn a_dropped_call_is_applied_all_the_same_and_blocks_nobody() {
    let folder = folder();
    let (store, switch) = store_on(RedbStore::builder(), &folder);
    let hung = switch.slow.lock().unwrap();
    for n in 0..50 {
        let mut call = Box::pin(claim(&store, n));
        let once = std::future::poll_fn(|cx| {
            let _ = std::future::Future::poll(call.as_mut(), cx);
            std::task::Poll::Ready(())
        });
        once.await;
    }
    drop(hung);
    done(&store, 100).await;
    for n in 0..50 {
        let busy = claim(&store, n).await.unwrap();
        assert!(matches!(busy, Claimed::Busy(_)), "{n}: {busy:?}");
    }
}
