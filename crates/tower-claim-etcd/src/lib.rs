//! The claim protocol on etcd: records, leases, and one transaction for each move.
//!
//! [`EtcdStore`] is a [`ClaimStore`](tower_claim::ClaimStore), so every layer of the family runs on it: a
//! claim is granted to one owner at a time, across processes and machines, with a fencing token that rises
//! over expiry, restart and failover. What a majority of the members has written is never forgotten, so `Hold`
//! and the point of no return are kept. A call that is repeated or arrives late has the effect of one at most.
//!
//! It does **not** tell spans below a second, and not exactly: etcd ends keys in whole seconds, up to a second
//! late. It does not answer without a majority, and it costs more trips than an engine that runs scripts: the
//! table at [`EtcdStore`] counts them. Exclusion alone protects no data from an owner that was paused: check
//! the token where the write happens ([`EtcdFenceStore`], or your database).
//!
//! `protoc` is needed to build (`apt-get install protobuf-compiler`, or `PROTOC` set to a stand-in).
//!
//! ```no_run
//! use std::time::Duration;
//! use tower_claim::{Attempt, Keeper, Key, Namespace, Terms, Token, Use};
//! use tower_claim_etcd::EtcdStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = EtcdStore::connect("http://10.0.0.1:2379,http://10.0.0.2:2379").await?;
//! let keeper = Keeper::new(store);
//! let terms = Terms::builder(Duration::from_secs(10)).build()?;
//! let key = Key::builder(Use::Lease, &Namespace::default()).part("account 42").build();
//!
//! if let Attempt::Granted(claim) = keeper.claim(key, None, &terms, Token::ZERO).await? {
//!     claim.check()?; // still ours: beats go out over a connection of the keeper's own
//!     claim.release().await?;
//! }
//! # Ok(()) }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod builder;
mod bytes;
mod calls;
mod doubts;
mod errors;
mod fence;
mod keys;
mod look;
mod many;
mod members;
mod moves;
mod plan;
mod record;
mod renew;
mod store;
mod watch;
mod write;

pub use builder::{ConnectError, EtcdStoreBuilder};
/// The client this store is built on, for [`EtcdStoreBuilder::client`].
pub use etcd_client;
pub use fence::EtcdFenceStore;
pub use store::EtcdStore;

/// Its examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
