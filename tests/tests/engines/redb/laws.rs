//! Every law: on real time and by hand, plain and behind each trouble.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use tempfile::TempDir;
use tower_claim::conformance::{Suite, Time};
use tower_claim::testing::ManualClock;
use tower_claim::{ClaimStore, Clock};
use tower_claim_redb::RedbStore;

use crate::suite::{QUICK, guard_laws, held, plain_and_troubled};

/// Steps in which a whole file is read page by page, also on a busy machine.
const SCANS: Time = Time::Real {
    unit: Duration::from_millis(300),
    tolerance: Duration::from_millis(60),
};

/// A folder of files, each of its own name.
struct Folder {
    place: TempDir,
    next: AtomicU32,
}

impl Folder {
    fn new() -> Self {
        Self {
            place: in_memory().expect("a folder"),
            next: AtomicU32::new(0),
        }
    }

    fn file(&self) -> PathBuf {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        self.place.path().join(format!("{n}.redb"))
    }
}

/// A folder in memory where the system has one: the laws are about answers, and a disk that others keep busy
/// makes their steps late. (What a disk does is tested in the crate.)
fn in_memory() -> std::io::Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

/// Few files for all laws: one for each law would measure how fast files are made, and a scan reads what all
/// the other laws left there, so that each suite has its own for scans.
#[tokio::test(flavor = "multi_thread")]
async fn every_law_holds_on_real_time() {
    let folder = Folder::new();
    let open = || RedbStore::open(folder.file()).expect("a new file");
    let store = open();
    let quick = plain_and_troubled(Suite::new(QUICK));
    let all = quick.zip(plain_and_troubled(Suite::new(SCANS)));
    let all = all.map(async |(quick, scans)| {
        let scanned = open();
        tokio::join!(
            quick.claim_store(async || store.clone()),
            quick.claim_many(async || store.clone()),
            scans.claim_admin(async || scanned.clone()),
        )
    });
    // More at once would be late on a busy machine.
    let mut all = futures_util::stream::iter(all).buffered(2);
    while let Some((one, many, admin)) = all.next().await {
        [one, many, admin].into_iter().for_each(held);
    }
}

/// A file for each law: the laws set the clock, and a wall clock set ahead stays in the file.
#[tokio::test(flavor = "multi_thread")]
async fn every_law_holds_by_hand() {
    let (folder, clock) = (Folder::new(), ManualClock::new());
    let time = Time::Manual(clock.clone());
    let clock: Arc<dyn Clock> = Arc::new(clock);
    let open = async || {
        let store = RedbStore::builder().clock(Arc::clone(&clock));
        let store = store.poll(Duration::from_millis(5));
        store.open(folder.file()).expect("a new file")
    };
    // One after the other: they share the clock.
    for suite in plain_and_troubled(Suite::new(time)) {
        held(suite.claim_store(&open).await);
        held(suite.claim_many(&open).await);
        held(suite.claim_admin(&open).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_keeps_every_law() {
    let folder = Folder::new();
    let store = RedbStore::open(folder.file()).expect("a new file");
    guard_laws(async || store.fence_store()).await;
}

#[test]
fn the_table_of_promises_is_what_the_code_says() {
    let folder = Folder::new();
    let store = RedbStore::open(folder.file()).expect("a new file");
    let table = store.capabilities().to_string();
    let docs = include_str!("../../../../crates/tower-claim-redb/src/store.rs");
    let readme = include_str!("../../../../crates/tower-claim-redb/README.md");
    for row in table.lines() {
        assert!(
            docs.contains(&format!("/// {row}\n")),
            "the docs lack {row}"
        );
        assert!(
            readme.contains(&format!("{row}\n")),
            "the readme lacks {row}"
        );
    }
}
