//! The claim on etcd.

mod bench;
mod cost;
mod door;
mod failover;
mod hard;
mod late;
mod odd;
mod still;
mod stored;
mod suite;
mod tls;
mod trips;

pub use failover::leader;
