//! The claim protocol on PostgreSQL: one statement per step, also inside your own transaction.
//!
//! [`PostgresStore`] is a store for the layers of the tower-claim family ([`ClaimStore`](tower_claim::ClaimStore),
//! [`ClaimMany`](tower_claim::ClaimMany), [`ClaimAdmin`](tower_claim::ClaimAdmin)), and a guard
//! ([`FenceStore`](tower_claim::FenceStore)). Its calls work through a pooler in transaction mode; a replay reads,
//! and neither locks nor writes; leases are judged by the server's clock alone. [`finish_in`] puts a result into
//! the transaction that writes the work's rows: an owner that was superseded cannot commit them.
//!
//! It does *not* promise more than PostgreSQL does: a server that does not wait for its disk or for its replicas may
//! forget what it answered. The store sees that when it connects, and says so in its capabilities. Heartbeats keep
//! a hold alive, they do not make an owner quick: guard what must not be written late.
//!
//! [`finish_in`]: PostgresStore::finish_in
//!
//! ```no_run
//! use std::time::Duration;
//! use tower_claim::store::{ClaimRequest, Claimed};
//! use tower_claim::{ClaimStore, Key, Namespace, Nonce, OsEntropy, Settings, Token, Use};
//! use tower_claim_postgres::PostgresStore;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let url = "postgres://app@localhost/shop";
//! PostgresStore::migrate(url).await?;
//! let store = PostgresStore::connect(url).await?;
//!
//! let answer = store
//!     .claim(ClaimRequest {
//!         key: Key::builder(Use::Lease, &Namespace::default()).part("seat 14").build(),
//!         nonce: Nonce::draw(&OsEntropy),
//!         fingerprint: None,
//!         settings: &Settings::new(Duration::from_secs(10)),
//!         floor: Token::ZERO,
//!         not_after: store.now().saturating_add(Duration::from_secs(2)),
//!     })
//!     .await?;
//! assert!(matches!(answer, Claimed::Granted(_)));
//! # Ok::<_, Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "axum")]
mod axum;
mod builder;
mod calls;
mod connect;
mod error;
#[doc(hidden)]
pub mod lend;
mod link;
mod listener;
mod migrate;
mod names;
mod protocol;
mod roll_back;
mod run;
mod self_test;
pub mod statement;
mod store;
mod stranger;
mod transaction;
mod work;

pub use builder::PostgresStoreBuilder;
pub use error::ConnectError;
pub use names::Names;
pub use roll_back::TransactionError;
pub use run::{RunTransaction, Transactions};
pub use store::{PostgresStore, PurgedEnded};
pub use work::WorkError;

/// Its examples run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
