//! redb: a file, opened once by this process for all who ask.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::future::BoxFuture;
use redb::{ReadableDatabase, ReadableTableMetadata, TableHandle};
use tempfile::TempDir;
use tower_claim::DynClaimStore;
use tower_claim::store::DynFenceStore;
use tower_claim_redb::RedbStore;

use crate::hostile::{Engine, Guarded};

pub struct One(TempDir);

/// The stores that are open, by path: one process owns a file, and opens it once.
fn open() -> MutexGuard<'static, HashMap<PathBuf, RedbStore>> {
    static OPEN: OnceLock<Mutex<HashMap<PathBuf, RedbStore>>> = OnceLock::new();
    let open = OPEN.get_or_init(Mutex::default);
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The one store of this process at this path.
fn store(address: String) -> RedbStore {
    let path = PathBuf::from(address);
    let opening = || RedbStore::open(&path).expect("a file of claims");
    open().entry(path.clone()).or_insert_with(opening).clone()
}

impl One {
    fn file(&self) -> PathBuf {
        self.0.path().join("claims.redb")
    }

    /// Waits until nobody of this process has it open.
    pub async fn close(path: &Path) {
        let store = open().remove(path);
        if let Some(store) = store {
            store.close().await;
        }
    }
}

impl Drop for One {
    fn drop(&mut self) {
        open().remove(&self.file());
    }
}

impl Engine for One {
    fn start() -> BoxFuture<'static, Self> {
        Box::pin(async { Self(tempfile::tempdir().expect("a folder")) })
    }

    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
        Box::pin(async { Arc::new(store(address)) as Arc<dyn DynClaimStore> })
    }

    fn address(&self) -> String {
        self.file().display().to_string()
    }

    /// Its rows are seen by nobody else while it is open: it is closed for the look.
    fn kept(&self) -> BoxFuture<'_, usize> {
        Box::pin(async {
            Self::close(&self.file()).await;
            if !self.file().exists() {
                return 0;
            }
            let rows = {
                let file = redb::Database::open(self.file()).expect("it is closed");
                let look = file.begin_read().expect("it is whole");
                let tables: Vec<_> = look.list_tables().expect("it is whole").collect();
                let of_claims = tables.into_iter().filter(|table| {
                    table.name().ends_with(".records") || table.name().ends_with(".due")
                });
                let rows = of_claims.map(|table| {
                    let table = look.open_untyped_table(table).expect("it is listed");
                    table.len().expect("it is whole")
                });
                rows.sum::<u64>()
            };
            Self::connect(self.address()).await;
            usize::try_from(rows).expect("a number")
        })
    }
}

impl Guarded for One {
    fn guard(address: String) -> BoxFuture<'static, Arc<dyn DynFenceStore>> {
        Box::pin(async { Arc::new(store(address).fence_store()) as Arc<dyn DynFenceStore> })
    }
}
