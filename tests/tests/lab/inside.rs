//! A server of one test, seen and changed from inside, past every client.

use super::engines::{Engine, Own};
#[cfg(feature = "postgres")]
use system_tests::servers::Postgres;
#[cfg(feature = "redis")]
use system_tests::servers::Redis;

impl Own {
    /// A server that writes nothing by itself.
    pub(super) fn still(engine: Engine) -> Self {
        match engine {
            #[cfg(feature = "postgres")]
            Engine::Postgres => Own::Postgres(Postgres::with(&[
                "fsync=off",
                "autovacuum=off",
                "wal_level=minimal",
                "max_wal_senders=0",
            ])),
            engine => Own::start(engine),
        }
    }

    /// What has been written to it so far, in its own measure.
    pub(super) fn written(&self) -> String {
        match self {
            #[cfg(feature = "redis")]
            Own::Redis(server) => told(server, "persistence", "rdb_changes_since_last_save"),
            #[cfg(feature = "postgres")]
            Own::Postgres(server) => server.sql("select pg_current_wal_insert_lsn()"),
            #[cfg(feature = "etcd")]
            Own::Etcd(_) => unasked(),
        }
    }

    /// How many connections it has, this one not counted.
    pub(super) fn connections(&self) -> usize {
        let count = match self {
            #[cfg(feature = "redis")]
            Own::Redis(server) => told(server, "clients", "connected_clients"),
            #[cfg(feature = "postgres")]
            Own::Postgres(server) => server
                .sql("select count(*) from pg_stat_activity where backend_type = 'client backend'"),
            #[cfg(feature = "etcd")]
            Own::Etcd(_) => unasked(),
        };
        count.parse::<usize>().expect("a number") - 1
    }

    /// The lease of this record is of no length from now on; its end stays as it was.
    pub(super) fn take_lease_of(&self, record: &str) {
        match self {
            #[cfg(feature = "redis")]
            Own::Redis(server) => {
                let set = server.ask(&format!("HSET {} lease 0", name(server, record)));
                assert!(set.starts_with(":0"), "it was there: {set}");
            }
            #[cfg(feature = "postgres")]
            Own::Postgres(server) => {
                let set =
                    format!("update tower_claim.claim set lease = '0' where key = '\\x{record}'");
                server.sql(&set);
            }
            #[cfg(feature = "etcd")]
            Own::Etcd(_) => unasked(),
        }
    }

    /// This record has no end any more; whether the engine keeps such a one.
    pub(super) fn take_end_of(&self, record: &str) -> bool {
        match self {
            #[cfg(feature = "redis")]
            Own::Redis(server) => {
                let gone = server.ask(&format!("HDEL {} ends", name(server, record)));
                gone.starts_with(":1")
            }
            #[cfg(feature = "postgres")]
            Own::Postgres(server) => {
                server.sql(&format!(
                    "do $$ begin
                       update tower_claim.claim set until = null where key = '\\x{record}';
                       raise 'it may lack its end';
                     exception when not_null_violation then null; end $$"
                ));
                false
            }
            #[cfg(feature = "etcd")]
            Own::Etcd(_) => unasked(),
        }
    }
}

#[cfg(feature = "etcd")]
fn unasked() -> ! {
    panic!("nobody asks this of etcd")
}

/// A line of `INFO`.
#[cfg(feature = "redis")]
fn told(server: &Redis, section: &str, field: &str) -> String {
    let said = server.ask(&format!("INFO {section}"));
    let line = said.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no {field}: {said}"))
        .trim()
        .to_owned()
}

/// The name that Redis has for this record.
#[cfg(feature = "redis")]
pub(super) fn name(server: &Redis, record: &str) -> String {
    let said = server.ask(&format!("KEYS *{record}"));
    let name = said.lines().find(|line| line.ends_with(record));
    name.unwrap_or_else(|| panic!("no {record}: {said}"))
        .to_owned()
}
