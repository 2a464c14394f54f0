//! The calls inside a transaction.

use std::time::Duration;

use sqlx::PgConnection;
use tower_claim::store::{ClaimRequest, Claimed, FinishRequest, Owner, Value};
use tower_claim::{Nonce, Token};
use tower_claim_postgres::statement::{BAR_COMMIT, Statements, answer};
use tower_claim_postgres::{Names, TransactionError};

use crate::row::ask;

/// The calls on claims and guards that run inside a transaction of yours. Cheap to make and to clone.
///
/// Each is one statement. Each takes a connection: hand over `&mut tx` of a `sqlx::Transaction`, at any
/// isolation level; a bare connection makes it a transaction of its own.
///
/// | Call | In the transaction it | until the end of which |
/// |---|---|---|
/// | [`finish_in`](Self::finish_in) | ends the claim with a result | the claim's record is locked |
/// | [`fence_in`](Self::fence_in) | admits a token at a guard | the guard's mark is locked: no newer token overtakes |
/// | [`still_held_in`](Self::still_held_in) | looks whether a claim stands | nobody takes it over, and **no beat renews it** |
/// | [`claim_in`](Self::claim_in) | claims a key | others are told that it is busy |
///
/// An error is a reason to roll back, so `?` is right: the transaction is dropped. Who goes on all the same commits
/// nothing: a refusal makes the transaction a failed one, whose `COMMIT` the server answers by a rollback. Waits for a locked row are
/// bounded ([`Statements::with_lock_wait`], 1 s; a claim's 50 ms); the bound of the transaction itself is
/// left as it was.
///
/// # Cancellation
///
/// A future that is dropped leaves its connection in the midst of an answer: sqlx closes it, and the server
/// rolls the transaction back.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    statements: Statements,
}

impl Claims {
    /// Calls on tables with the default names: schema `tower_claim`, no prefix.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls on tables with these names.
    pub fn named(names: &Names) -> Self {
        Self::with_statements(Statements::new(names))
    }

    /// Calls by these statements: with waits of their own.
    pub fn with_statements(statements: Statements) -> Self {
        Self { statements }
    }

    pub(crate) fn statements(&self) -> &Statements {
        &self.statements
    }

    /// Ends a claim with a result that is kept for `keep`: the last statement before the commit, or nearly.
    /// The token decides, not time. The owner comes from
    /// [`Claim::begin_finish`](tower_claim::Claim::begin_finish).
    ///
    /// At REPEATABLE READ and above the record must not have been renewed since the transaction's first
    /// statement: begin the finish before it, or run the transaction again when the error
    /// [is retryable](TransactionError::is_retryable); the second time no beat is in the way.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Lost`] where another took over; [`TransactionError::Store`]. Roll back.
    pub async fn finish_in(
        &self,
        transaction: &mut PgConnection,
        owner: impl Into<Owner>,
        value: Value,
        keep: Duration,
    ) -> Result<(), TransactionError> {
        let owner = owner.into();
        let call = self
            .statements
            .finish(&FinishRequest { owner, value, keep });
        let row = ask(transaction, Some(&owner.key), &call).await?;
        let answer = TransactionError::unless_finished(answer::finished(&owner.key, &row)?);
        bar(transaction, answer).await
    }

    /// Admits a write on `resource` under a fencing token, and keeps newer ones out until the transaction
    /// ends: the first statement before the writes, or nearly.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Stale`], [`TransactionError::Collision`], [`TransactionError::Store`]. Roll back.
    pub async fn fence_in(
        &self,
        transaction: &mut PgConnection,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<(), TransactionError> {
        let call = self.statements.fence_in(resource, token, nonce);
        let row = ask(transaction, None, &call).await?;
        bar(
            transaction,
            TransactionError::unless_admitted(answer::admission(&row)?),
        )
        .await
    }

    /// Looks whether the owner holds its key, and keeps it so until the transaction ends: for writes that do
    /// not finish the claim. No beat renews the record meanwhile (to the keeper that is doubt, not loss): keep
    /// the transaction shorter than the lease.
    ///
    /// # Errors
    ///
    /// [`TransactionError::NotHeld`], [`TransactionError::Store`]. Roll back.
    pub async fn still_held_in(
        &self,
        transaction: &mut PgConnection,
        owner: impl Into<Owner>,
    ) -> Result<(), TransactionError> {
        let owner = owner.into();
        let call = self.statements.still_held(owner);
        let row = ask(transaction, Some(&owner.key), &call).await?;
        let answer = TransactionError::unless_held(answer::still_held(&owner.key, &row)?);
        bar(transaction, answer).await
    }

    /// Claims a key inside the transaction, for work that begins and ends in it: others see it when it is
    /// committed, and are told `Busy` until then. Nobody beats for it. Where another transaction is at the
    /// key the answer is `Busy` as well, and this transaction goes on.
    ///
    /// A claim that other processes are to see while the work goes on is the keeper's.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Store`]. Roll back.
    pub async fn claim_in(
        &self,
        transaction: &mut PgConnection,
        request: ClaimRequest<'_>,
    ) -> Result<Claimed, TransactionError> {
        let call = self.statements.claim_in(&request);
        let row = ask(transaction, Some(&request.key), &call).await?;
        Ok(answer::claimed(&request.key, &row)?)
    }
}

/// A transaction that was refused cannot be committed, whatever becomes of the error. One trip more, for who is
/// refused.
async fn bar(
    transaction: &mut PgConnection,
    answer: Result<(), TransactionError>,
) -> Result<(), TransactionError> {
    if answer.is_err() {
        // It fails: that is its purpose. Without a connection there is nothing to commit.
        let _ = sqlx::raw_sql(BAR_COMMIT).execute(transaction).await;
    }
    answer
}
