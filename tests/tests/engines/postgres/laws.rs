//! Every law, over one server.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Mutex;
use tower_claim_postgres::{PostgresStore, PostgresStoreBuilder};

use super::{fresh_schema, server};
use crate::suite;

/// Opens stores over tables that soon give way to fresh ones: a law that scans sees little of the others'.
pub(super) struct Opener {
    pub(super) builder: PostgresStoreBuilder,
    opened: AtomicUsize,
    schema: Mutex<String>,
}

const STORES_PER_SCHEMA: usize = 30;

impl Opener {
    pub(super) fn new(builder: PostgresStoreBuilder) -> Self {
        Self {
            builder,
            opened: AtomicUsize::new(0),
            schema: Mutex::default(),
        }
    }

    pub(super) async fn open(&self) -> PostgresStore {
        let mut schema = self.schema.lock().await;
        let nth = self.opened.fetch_add(1, Ordering::Relaxed);
        if nth.is_multiple_of(STORES_PER_SCHEMA) {
            *schema = fresh_schema();
            let builder = self.builder.clone().schema(&schema);
            builder.migrate().await.expect("it migrates");
        }
        let builder = self.builder.clone().schema(&schema).pool_size(2);
        drop(schema);
        builder.connect().await.expect("it connects")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_holds() {
    let opener = Opener::new(PostgresStore::builder().url(&server().url()));
    suite::every_law(suite::QUICK, async || opener.open().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_keeps_every_law() {
    let opener = Opener::new(PostgresStore::builder().url(&server().url()));
    suite::guard_laws(async || opener.open().await).await;
}
