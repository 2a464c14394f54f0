//! PostgreSQL, alone and with a streaming replica.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use system_tests::relay::{Relay, Way};
use system_tests::servers::{self, MovedClock};
use tower_claim::DynClaimStore;
use tower_claim_postgres::PostgresStore;

use crate::hostile::{Clocked, Engine, failover};

pub struct Server(servers::Postgres);

fn url(address: &str) -> String {
    format!("postgres://postgres@{address}/postgres")
}

async fn with_tables(server: servers::Postgres) -> Server {
    let migrated = PostgresStore::migrate(&server.url()).await;
    migrated.expect("the server runs");
    Server(server)
}

impl Engine for Server {
    fn start() -> BoxFuture<'static, Self> {
        Box::pin(with_tables(servers::Postgres::start()))
    }

    fn connect(address: String) -> BoxFuture<'static, Arc<dyn DynClaimStore>> {
        Box::pin(async move {
            // One hour is a failover to a replica that was behind.
            let store = PostgresStore::builder().asynchronous_failover(true);
            let store = store.url(&url(&address)).connect().await;
            Arc::new(store.expect("the server runs")) as Arc<dyn DynClaimStore>
        })
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.0.port())
    }

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

impl Clocked for Server {
    fn start_under(clock: &MovedClock) -> BoxFuture<'_, Self> {
        Box::pin(with_tables(servers::Postgres::under(clock)))
    }
}

/// A primary, a hot standby, and the line between them.
pub struct Pair {
    primary: servers::Postgres,
    line: Relay,
    replica: servers::Postgres,
}

impl failover::Pair for Pair {
    type Engine = Server;

    fn start() -> BoxFuture<'static, Self> {
        Box::pin(async {
            let Server(primary) = with_tables(servers::Postgres::start()).await;
            let line = Relay::to(format!("127.0.0.1:{}", primary.port()));
            let port = line.port();
            let copying = tokio::task::spawn_blocking(move || servers::Postgres::replica_of(port));
            Self {
                primary,
                line,
                replica: copying.await.expect("the primary can be copied"),
            }
        })
    }

    fn primary(&self) -> String {
        format!("127.0.0.1:{}", self.primary.port())
    }

    fn cut_replication(&mut self) {
        let written = self.primary.sql("select pg_current_wal_flush_lsn()");
        let until = Instant::now() + Duration::from_secs(30);
        while self
            .replica
            .sql(&format!("select pg_last_wal_replay_lsn() >= '{written}'"))
            != "t"
        {
            assert!(Instant::now() < until, "the replica does not follow");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.line.set(Way::Freeze);
    }

    fn promote(&mut self) -> String {
        self.primary.kill();
        // What stands in the line is lost with the primary.
        self.line.cut();
        self.replica.sql("select pg_promote()");
        format!("127.0.0.1:{}", self.replica.port())
    }
}
