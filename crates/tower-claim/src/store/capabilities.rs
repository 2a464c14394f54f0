//! What an engine can promise.

use std::time::Duration;

/// What an engine can promise, in code: each store's table of promises in its docs says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The engine's name: `memory`, `redis`, …
    pub engine: &'static str,
    /// Whether the engine may forget what it answered (asynchronous failover, lazy flush to disk). There
    /// [`LapsePolicy::Hold`](crate::LapsePolicy::Hold) and the point of no return cannot be kept.
    pub may_forget: bool,
    /// Whether records outlive the process.
    pub durable: bool,
    /// Claims over several keys.
    pub multi_key: MultiKey,
    /// The connection heartbeats go over.
    pub keeper: KeeperConnection,
    /// The smallest span of time the engine can tell.
    pub time_unit: Duration,
}

impl Capabilities {
    /// The promises of an engine in this process: nothing outlives it, nothing is forgotten within it,
    /// several keys in one step, nanoseconds.
    pub const fn in_process(engine: &'static str) -> Self {
        Self {
            engine,
            may_forget: false,
            durable: false,
            multi_key: MultiKey::Atomic,
            keeper: KeeperConnection::Own,
            time_unit: Duration::from_nanos(1),
        }
    }
}

/// Claims over several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MultiKey {
    /// Any keys, all or nothing in one step.
    Atomic,
    /// Only keys that share a slot (Redis Cluster with a hash tag).
    SameSlot,
    /// One key at a time.
    None,
}

/// The connection heartbeats go over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeeperConnection {
    /// Made on the keeper's own runtime: beats go on when the user's runtime is blocked.
    Own,
    /// Shared with requests: beats stall with the user's runtime.
    Shared,
}
