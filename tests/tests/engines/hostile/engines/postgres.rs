//! PostgreSQL, alone and with a streaming replica.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use system_tests::relay::{Relay, Way};
use system_tests::servers::{self, MovedClock};
use tower_claim::DynClaimStore;
use tower_claim::store::DynFenceStore;
use tower_claim_postgres::{PostgresStore, PostgresStoreBuilder};

use crate::hostile::{Clocked, Engine, Guarded, Server, failover};

pub struct One(servers::Postgres);

pub fn url(address: &str) -> String {
    format!("postgres://postgres@{address}/postgres")
}

async fn open(builder: PostgresStoreBuilder, address: &str) -> Arc<dyn DynClaimStore> {
    // What is over is soon forgotten: one hour waits for that.
    let builder = builder.purge_every(Some(Duration::from_millis(500)));
    let store = builder.url(&url(address)).connect().await;
    Arc::new(store.expect("the server runs"))
}

async fn with_tables(server: servers::Postgres) -> One {
    let migrated = PostgresStore::migrate(&server.url()).await;
    migrated.expect("the server runs");
    One(server)
}

impl Engine for One {
    fn start() -> BoxFuture<'static, Self> {
        // With a disk that it waits for: without one it promises less.
        Box::pin(with_tables(servers::Postgres::with(&[])))
    }

    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
        Box::pin(async move { open(PostgresStore::builder(), &address).await })
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.0.port())
    }

    fn kept(&self) -> BoxFuture<'_, usize> {
        Box::pin(async {
            let rows = "select (select count(*) from tower_claim.claim) \
                        + (select count(*) from tower_claim.spent)";
            self.0.sql(rows).parse().expect("a number")
        })
    }
}

impl Guarded for One {
    fn guard(address: String) -> BoxFuture<'static, Arc<dyn DynFenceStore>> {
        Box::pin(async move {
            let store = PostgresStore::connect(&url(&address)).await;
            Arc::new(store.expect("the server runs")) as Arc<dyn DynFenceStore>
        })
    }
}

impl Server for One {
    fn stop(&self) {
        self.0.process().stop();
    }

    fn go_on(&self) {
        self.0.process().go_on();
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    fn run(&mut self) {
        self.0.run();
    }

    fn wipe(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.0.sql("truncate tower_claim.claim, tower_claim.spent");
        })
    }
}

impl Clocked for One {
    fn start_under(clock: &MovedClock) -> BoxFuture<'_, Self> {
        Box::pin(with_tables(servers::Postgres::under(clock)))
    }
}

/// A primary, a hot standby, and the line between them.
struct Replicated {
    primary: servers::Postgres,
    line: Relay,
    replica: servers::Postgres,
}

impl Replicated {
    async fn start() -> Self {
        let One(primary) = with_tables(servers::Postgres::start()).await;
        let line = Relay::to(format!("127.0.0.1:{}", primary.port()));
        let port = line.port();
        let copying = tokio::task::spawn_blocking(move || servers::Postgres::replica_of(port));
        Self {
            primary,
            line,
            replica: copying.await.expect("the primary can be copied"),
        }
    }

    fn primary(&self) -> String {
        format!("127.0.0.1:{}", self.primary.port())
    }

    fn promote(&mut self) -> String {
        self.primary.kill();
        // What stands in the line is lost with the primary.
        self.line.cut();
        self.replica.sql("select pg_promote()");
        format!("127.0.0.1:{}", self.replica.port())
    }
}

fn wait_until(what: &str, ready: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !ready() {
        assert!(Instant::now() < until, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The primary answers before the replica has it, and its users say so.
pub struct AsyncPair(Replicated);

impl failover::Pair for AsyncPair {
    type Engine = One;

    fn start() -> BoxFuture<'static, Self> {
        Box::pin(async { Self(Replicated::start().await) })
    }

    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
        Box::pin(async move {
            let builder = PostgresStore::builder().asynchronous_failover(true);
            open(builder, &address).await
        })
    }

    fn primary(&self) -> String {
        self.0.primary()
    }

    fn cut_replication(&mut self) {
        let written = self.0.primary.sql("select pg_current_wal_flush_lsn()");
        let asked = format!("select pg_last_wal_replay_lsn() >= '{written}'");
        wait_until("the replica's following", || {
            self.0.replica.sql(&asked) == "t"
        });
        self.0.line.set(Way::Freeze);
    }

    fn promote(&mut self) -> String {
        self.0.promote()
    }
}

/// The primary answers when the replica has it: the store's defaults.
pub struct SyncPair(Replicated);

impl failover::Pair for SyncPair {
    type Engine = One;

    fn start() -> BoxFuture<'static, Self> {
        Box::pin(async {
            let pair = Replicated::start().await;
            // The replica was copied before: once promoted it waits for nobody.
            pair.primary
                .sql("alter system set synchronous_standby_names = '*'");
            pair.primary.sql("select pg_reload_conf()");
            wait_until("synchronous replication", || {
                let states = pair
                    .primary
                    .sql("select sync_state from pg_stat_replication");
                states == "sync"
            });
            Self(pair)
        })
    }

    fn primary(&self) -> String {
        self.0.primary()
    }

    /// It would answer no more.
    fn cut_replication(&mut self) {}

    fn promote(&mut self) -> String {
        self.0.promote()
    }
}
