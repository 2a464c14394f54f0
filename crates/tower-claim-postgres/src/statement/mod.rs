//! The statements behind the store, for who talks to PostgreSQL by another driver.
//!
//! [`Statements`] makes a [`Call`] of each move: its text, which never changes for one set of names, and its
//! parameters in order. Each call answers one row (a batch: one for each member, which tells its place as
//! `nth`), whose columns a driver hands over as [`Columns`]; the functions of [`answer`] read them. What the
//! server refuses, [`failure`] puts into a [`StoreError`](tower_claim::StoreError).
//!
//! ```
//! use tower_claim::store::Owner;
//! use tower_claim::{Key, Nonce, Token};
//! use tower_claim_postgres::statement::{Param, Statements};
//!
//! let owner = Owner {
//!     key: Key::from_bytes([1; 32]),
//!     nonce: Nonce::from_bytes([2; 16]),
//!     token: Token::ZERO,
//! };
//! let call = Statements::default().still_held(owner);
//! assert_eq!(call.text(), r#"select * from "tower_claim".still_held_v1($1, $2, $3, $4)"#);
//! assert!(matches!(call.params()[..], [Param::Bytes(_), Param::Bytes(_), Param::Int(Some(0)), Param::Small(_)]));
//! ```

pub mod answer;
mod ask;
mod ask_guard;
mod ask_operator;
mod failure;
#[cfg(test)]
mod foreign_rows;
mod param;
mod row;
mod texts;

use std::sync::Arc;

pub use answer::{Columns, ReadError};
pub use ask::Statements;
pub use failure::{came_second, conflict, failure};
pub use param::Param;

/// Fails, and so bars the commit of the transaction it is sent in: the server answers `COMMIT` by a rollback. To be
/// sent after an answer that forbids the commit ([`TransactionError`](crate::TransactionError)).
pub const BAR_COMMIT: &str = "do $$ begin raise exception 'refused by tower-claim: roll back' using errcode = 'TC004'; end $$";

/// One statement and its parameters. Auto-commit, or within a transaction.
#[derive(Debug, Clone)]
pub struct Call {
    text: Arc<str>,
    params: Vec<Param>,
}

impl Call {
    /// The statement, with `$1`, `$2`, …
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The parameters, `$1` first.
    pub fn params(&self) -> &[Param] {
        &self.params
    }
}
