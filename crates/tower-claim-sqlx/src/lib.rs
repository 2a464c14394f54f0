//! Claims, finishes and fences inside your own sqlx transaction.
//!
//! The claims of `tower-claim-postgres` live in tables of your database. So the end of a claim can be one of
//! the statements of the transaction that does the work, and [`Claims`] sends it over your sqlx connection:
//!
//! - **A zombie cannot commit.** [`finish_in`](Claims::finish_in) is an error where another took over, and
//!   holds the claim until your transaction ends: rows and result are committed together, or neither is.
//! - **A stale write cannot commit.** [`fence_in`](Claims::fence_in) is an error for a token below one that
//!   was admitted, and keeps newer ones out until your transaction ends.
//! - **A loser does not wait.** [`claim_in`](Claims::claim_in) answers `Busy` where another transaction is at
//!   the key, and leaves yours alive.
//! - **Behind an idempotency layer the layer commits.** A handler takes a [`RunTransaction`], writes and answers:
//!   rows and answer are committed together, or neither is ([`Transactions`]); the claim as well, where
//!   the layer is told to claim inside.
//! - *Not*: a store. Claiming, heartbeats, waiting and purging are `PostgresStore`'s, over connections of its
//!   own. Both see the same claims.
//!
//! ```no_run
//! # async fn example(
//! #     pool: sqlx::PgPool, keeper: tower_claim::Keeper, key: tower_claim::Key, terms: tower_claim::Terms,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tower_claim::store::Value;
//! use tower_claim::{Attempt, Token};
//! use tower_claim_sqlx::Claims;
//!
//! let Attempt::Granted(claim) = keeper.claim(key, None, &terms, Token::ZERO).await? else {
//!     return Ok(()); // somebody else is at it, or was
//! };
//! let mut tx = pool.begin().await?;
//! sqlx::query("insert into receipts (id) values (7)").execute(&mut *tx).await?;
//!
//! let finishing = claim.begin_finish()?; // beats stop: they would meet the locked record
//! let receipt = Value::Kept("receipt 7".into());
//! Claims::new().finish_in(&mut tx, &finishing, receipt, Duration::from_secs(86_400)).await?;
//! tx.commit().await?;
//! finishing.committed();
//! # Ok(()) }
//! ```

#[cfg(feature = "axum")]
mod axum;
mod calls;
mod error;
mod row;
mod run;
mod work;

pub use calls::Claims;
pub use run::{RunTransaction, Transactions};
pub use tower_claim_postgres::TransactionError;
pub use work::WorkError;

/// Its examples run as tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;
