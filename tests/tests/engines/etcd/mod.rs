//! The claim on etcd.

mod bench;
mod suite;
