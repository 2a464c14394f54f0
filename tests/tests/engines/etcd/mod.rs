//! The claim on etcd.

mod bench;
mod door;
mod failover;
mod late;
mod stored;
mod suite;
mod trips;
