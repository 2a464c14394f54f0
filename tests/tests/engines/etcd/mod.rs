//! The claim on etcd.

mod bench;
mod cost;
mod door;
mod failover;
mod flush;
mod granted;
mod hard;
mod late;
mod odd;
mod purged;
mod still;
mod stored;
mod suite;
mod tls;
mod trips;
mod wake;

pub use failover::leader;
