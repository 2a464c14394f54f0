//! The claim protocol on etcd.

mod admin;
mod builder;
mod bytes;
mod calls;
mod fence;
mod keys;
mod many;
mod moves;
mod plan;
mod record;
mod renew;
mod store;
mod watch;

pub use builder::{ConnectError, EtcdStoreBuilder};
pub use etcd_client;
pub use fence::EtcdFenceStore;
pub use store::EtcdStore;
