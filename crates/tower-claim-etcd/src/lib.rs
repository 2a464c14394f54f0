//! The claim protocol on etcd: transactions over revisions and leases.
