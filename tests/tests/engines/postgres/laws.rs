//! Every law, over one server.

use std::sync::atomic::{AtomicUsize, Ordering};

use std::time::Duration;

use tokio::sync::Mutex;
use tower_claim::conformance::{Suite, Time};
use tower_claim_postgres::{PostgresStore, PostgresStoreBuilder};

use system_tests::servers::PgBouncer;

use super::scene::{client, store};
use super::{fresh_schema, server};
use crate::suite;

/// Opens stores over tables that soon give way to fresh ones: a law that scans sees little of the others'.
struct Opener {
    builder: PostgresStoreBuilder,
    opened: AtomicUsize,
    schema: Mutex<String>,
}

const STORES_PER_SCHEMA: usize = 10;

/// Each change waits for the disk, which a busy machine shares.
const BY_THE_DISK: Time = Time::Real {
    unit: Duration::from_millis(200),
    tolerance: Duration::from_millis(40),
};

/// Suites on real time, one after the other: each is busy enough.
static ONE_SUITE: Mutex<()> = Mutex::const_new(());

impl Opener {
    fn new(builder: PostgresStoreBuilder) -> Self {
        Self {
            builder,
            opened: AtomicUsize::new(0),
            schema: Mutex::default(),
        }
    }

    async fn open(&self) -> PostgresStore {
        self.open_at(None).await
    }

    async fn open_at(&self, url: Option<&str>) -> PostgresStore {
        let mut schema = self.schema.lock().await;
        let nth = self.opened.fetch_add(1, Ordering::Relaxed);
        if nth.is_multiple_of(STORES_PER_SCHEMA) {
            *schema = fresh_schema();
            let builder = self.builder.clone().schema(&schema);
            builder.migrate().await.expect("it migrates");
        }
        let builder = self.builder.clone().schema(&schema).pool_size(2);
        drop(schema);
        let builder = match url {
            Some(url) => builder.url(url),
            None => builder,
        };
        builder.connect().await.expect("it connects")
    }
}

#[tokio::test]
async fn a_token_is_the_greatest_of_three() {
    let (store, _) = store().await;
    let client = client(&server().url()).await;
    let store_ms = async || {
        let ms = "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint";
        let row = client.query_one(ms, &[]).await.expect("the time");
        u64::try_from(row.get::<_, i64>(0)).expect("after 1970")
    };
    suite::tokens_follow_their_rule(&store, store_ms).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_holds() {
    let _alone = ONE_SUITE.lock().await;
    let opener = Opener::new(PostgresStore::builder().url(&server().url()));
    suite::every_law(BY_THE_DISK, async || opener.open().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_keeps_every_law() {
    let opener = Opener::new(PostgresStore::builder().url(&server().url()));
    suite::guard_laws(async || opener.open().await).await;
}

/// Four sessions for all stores: no statement may count on the session of the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_holds_through_a_pooler_of_transactions() {
    let _alone = ONE_SUITE.lock().await;
    let pooler = PgBouncer::before(server(), 4);
    let builder = PostgresStore::builder()
        .url(&pooler.url())
        .listen_url(&server().url());
    let opener = Opener::new(builder);
    // The troubles happen before a call is sent, or behind its answer: they know no pooler.
    suite::laws(Suite::new(BY_THE_DISK), &async || opener.open().await).await;
}

fn address() -> String {
    format!("127.0.0.1:{}", server().port())
}

fn at(address: &str) -> String {
    format!("postgres://postgres@{address}/postgres")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_holds_behind_the_relay() {
    let _alone = ONE_SUITE.lock().await;
    let opener = Opener::new(PostgresStore::builder().url(&server().url()));
    let open = async |address: String| opener.open_at(Some(&at(&address))).await;
    // Every trip costs 4 ms more.
    let time = Time::Real {
        unit: Duration::from_millis(250),
        tolerance: Duration::from_millis(20),
    };
    suite::behind_the_relay(Suite::new(time), &address(), open).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_told_honestly() {
    let builder = PostgresStore::builder()
        .url(&server().url())
        .schema(&fresh_schema());
    builder.migrate().await.expect("it migrates");
    let direct = builder.clone().connect().await.expect("it connects");
    let through = async |address: String| {
        let builder = builder.clone().url(&at(&address)).pool_size(1);
        let builder = builder.call_timeout(Duration::from_secs(2));
        builder.connect().await.expect("it connects")
    };
    suite::lost_answers(&address(), through, direct).await;
}
