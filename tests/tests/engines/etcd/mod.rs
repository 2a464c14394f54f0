//! The claim on etcd.

mod bench;
mod door;
mod failover;
mod hard;
mod late;
mod odd;
mod still;
mod stored;
mod suite;
mod trips;

pub use failover::leader;
