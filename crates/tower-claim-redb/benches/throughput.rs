//! Claims per second, beside one insert per commit of the same redb, and beside the three rows that a claim writes
//! (record, when it is due, what time it is), in as many tables: `cargo bench -p tower-claim-redb`.
//!
//! A folder may be given in `BENCH_FOLDER`: what counts is its disk. Each round is of one second; they take
//! turns, so that a busy disk slows both.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints, and stops at the first error"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redb::{Database, TableDefinition};
use tower_claim::store::ClaimRequest;
use tower_claim::{ClaimStore, Key, Namespace, Nonce, OsEntropy, Settings, Token, Use};
use tower_claim_redb::RedbStore;

const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
const RAW: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("raw");
const RECORDS: TableDefinition<'_, &[u8; 32], &[u8]> = TableDefinition::new("records");
const DUE: TableDefinition<'_, &[u8; 40], ()> = TableDefinition::new("due");
const SEEN: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("seen");

fn main() {
    let folder = match std::env::var_os("BENCH_FOLDER") {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    };
    let folder = folder.unwrap();
    let raw = Database::create(folder.path().join("raw")).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(async { open(folder.path()) });
    let next = Arc::new(AtomicU32::new(0));
    let mut seen: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        seen[0].push(inserts(&raw, &next));
        seen[1].push(rows_of_claims(&raw, &next));
        seen[2].push(runtime.block_on(claims(&store, &next, 1)));
        seen[3].push(runtime.block_on(claims(&store, &next, 64)));
        seen[4].push(runtime.block_on(replays(&store)));
    }
    let names = [
        "raw: one insert per commit",
        "raw: the rows of a claim",
        "claims, 1 caller",
        "claims, 64 callers",
        "busy (a read), 1 caller",
    ];
    for (name, mut seen) in names.into_iter().zip(seen) {
        seen.sort_by(f64::total_cmp);
        println!("{name:28} {:>9.0} /s", seen[ROUNDS / 2]);
    }
}

fn open(folder: &Path) -> RedbStore {
    RedbStore::open(folder.join("claims")).unwrap()
}

fn inserts(raw: &Database, next: &AtomicU32) -> f64 {
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < ROUND {
        let txn = raw.begin_write().unwrap();
        let n = u64::from(next.fetch_add(1, Ordering::Relaxed));
        txn.open_table(RAW)
            .unwrap()
            .insert(n, [7_u8; 128].as_slice())
            .unwrap();
        txn.commit().unwrap();
        done += 1;
    }
    f64::from(done) / began.elapsed().as_secs_f64()
}

fn rows_of_claims(raw: &Database, next: &AtomicU32) -> f64 {
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < ROUND {
        let txn = raw.begin_write().unwrap();
        let n = next.fetch_add(1, Ordering::Relaxed);
        let (key, record, now) = (key(n), [7_u8; 128], u64::from(n).to_be_bytes());
        let mut due = [0; 40];
        due[..8].copy_from_slice(&now);
        due[8..].copy_from_slice(key.as_bytes());
        let mut records = txn.open_table(RECORDS).unwrap();
        records.insert(key.as_bytes(), record.as_slice()).unwrap();
        txn.open_table(DUE).unwrap().insert(&due, ()).unwrap();
        let mut seen = txn.open_table(SEEN).unwrap();
        seen.insert("seen", now.as_slice()).unwrap();
        drop((records, seen));
        txn.commit().unwrap();
        done += 1;
    }
    f64::from(done) / began.elapsed().as_secs_f64()
}

fn key(n: u32) -> Key {
    Key::builder(Use::Lease, &Namespace::default())
        .part(n.to_be_bytes())
        .build()
}

async fn claim(store: &RedbStore, n: u32) {
    let settings = Settings::new(Duration::from_secs(10));
    let request = ClaimRequest {
        key: key(n),
        nonce: Nonce::draw(&OsEntropy),
        fingerprint: None,
        settings: &settings,
        floor: Token::ZERO,
        not_after: store.now().saturating_add(Duration::from_secs(2)),
    };
    store.claim(request).await.unwrap();
}

async fn claims(store: &RedbStore, next: &Arc<AtomicU32>, callers: usize) -> f64 {
    let began = Instant::now();
    let callers = (0..callers).map(|_| {
        let (store, next) = (store.clone(), Arc::clone(next));
        tokio::spawn(async move {
            let mut done = 0;
            while began.elapsed() < ROUND {
                claim(&store, next.fetch_add(1, Ordering::Relaxed)).await;
                done += 1;
            }
            done
        })
    });
    let mut done = 0;
    for caller in callers.collect::<Vec<_>>() {
        done += caller.await.unwrap();
    }
    f64::from(done) / began.elapsed().as_secs_f64()
}

async fn replays(store: &RedbStore) -> f64 {
    claim(store, u32::MAX).await;
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < ROUND {
        claim(store, u32::MAX).await;
        done += 1;
    }
    f64::from(done) / began.elapsed().as_secs_f64()
}
