//! PostgreSQL: every law, and what is this engine's own.

mod cost;
mod crash;
mod forgets;
mod laws;
mod locks;
mod marks;
mod migration;
mod plans;
mod purge;
mod purged;
mod roles;
mod rows;
mod scene;
mod settings;
mod throughput;
mod tls;
mod traffic;
mod transaction;
mod watch;
mod wrong_server;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use system_tests::servers::Postgres;

/// One server for all.
fn server() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start)
}

/// A schema that no other test uses.
fn fresh_schema() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
