//! PostgreSQL: every law, and what is this engine's own.

mod cost;
mod crash;
mod laws;
mod locks;
mod scene;
mod settings;
mod tables;
mod tls;
mod traffic;
mod transaction;
mod watch;

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
