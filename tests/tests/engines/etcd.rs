//! The suite on etcd.
