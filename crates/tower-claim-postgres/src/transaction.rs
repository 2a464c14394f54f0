//! Within the user's transaction.

use std::time::Duration;

use tokio_postgres::{GenericClient, Row};
use tower_claim::store::{ClaimRequest, Claimed, FinishRequest, Owner, Value};
use tower_claim::{Key, Nonce, StoreError, Token};

use crate::calls::{no_row, query};
use crate::error::{of_mark, of_statement};
use crate::statement::{BAR_COMMIT, Call, answer};
use crate::{PostgresStore, TransactionError};

/// Calls within your own transaction: what they change commits with your rows, or not at all.
///
/// `client` is a [`tokio_postgres::Transaction`] (of a `deadpool_postgres::Transaction`: `&*transaction`). None
/// of them has a timeout of its own; a wait for a locked row is bounded.
///
/// **What forbids the commit is an error**, so `?` is right: the transaction is dropped, which rolls it back. Who
/// goes on all the same commits nothing: a refusal makes the transaction a failed one, whose `COMMIT` the server
/// answers by a rollback.
/// Where the error [is retryable](TransactionError::is_retryable), run the whole transaction again: at
/// `REPEATABLE READ` and `SERIALIZABLE` that is how PostgreSQL says that another transaction came first.
impl PostgresStore {
    /// Claims a key: the first statement of a transaction that runs the work as well. A rollback takes the
    /// claim back.
    ///
    /// A claim that meets a row which another transaction has locked is answered [`Claimed::Busy`] within 50 ms
    /// (with a token of zero, where that one has just made it), and the transaction lives on: so duplicates do
    /// not pin connections.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Store`]. Roll back.
    pub async fn claim_in(
        &self,
        client: &impl GenericClient,
        request: ClaimRequest<'_>,
    ) -> Result<Claimed, TransactionError> {
        let call = self.statements().claim_in(&request);
        let answer = self.ask_in(client, call, Some(request.key), |row| {
            answer::claimed(&request.key, row)
        });
        Ok(answer.await?)
    }

    /// Ends a claim, made outside or inside, with a result that is kept for `keep`: a late statement of the
    /// transaction that writes the work's rows. The token decides, not time; an owner that was superseded
    /// cannot commit. The owner of a keeper's claim comes from
    /// [`Claim::begin_finish`](tower_claim::Claim::begin_finish): hand over `&finishing`.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Lost`] where another took over; [`TransactionError::Store`]. Roll back.
    pub async fn finish_in(
        &self,
        client: &impl GenericClient,
        owner: impl Into<Owner>,
        value: Value,
        keep: Duration,
    ) -> Result<(), TransactionError> {
        let owner = owner.into();
        let request = FinishRequest { owner, value, keep };
        let call = self.statements().finish(&request);
        let key = owner.key;
        let answer = self.ask_in(client, call, Some(key), |row| answer::finished(&key, row));
        bar(client, TransactionError::unless_finished(answer.await?)).await
    }

    /// Admits a write to `resource` by the token of its lease. The mark stays locked until the transaction
    /// ends: no newer token overtakes this one in between.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Stale`], [`TransactionError::Collision`], [`TransactionError::Store`]. Roll back.
    pub async fn fence_in(
        &self,
        client: &impl GenericClient,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<(), TransactionError> {
        let call = self.statements().fence_in(resource, token, nonce);
        let answer = self.ask_in(client, call, None, answer::admission).await;
        let answer = answer.map_err(of_mark(resource))?;
        bar(client, TransactionError::unless_admitted(answer)).await
    }

    /// Looks whether the owner holds the key still, and keeps it so: nobody is granted the key before the
    /// transaction ends. Real mutual exclusion, not only order.
    ///
    /// Make it the **last statement before the commit**: the owner's own heartbeats wait too.
    ///
    /// # Errors
    ///
    /// [`TransactionError::NotHeld`], [`TransactionError::Store`]. Roll back.
    pub async fn still_held_in(
        &self,
        client: &impl GenericClient,
        owner: impl Into<Owner>,
    ) -> Result<(), TransactionError> {
        let owner = owner.into();
        let call = self.statements().still_held(owner);
        let answer = self.ask_in(client, call, Some(owner.key), |row| {
            answer::still_held(&owner.key, row)
        });
        bar(client, TransactionError::unless_held(answer.await?)).await
    }

    async fn ask_in<T>(
        &self,
        client: &impl GenericClient,
        call: Call,
        key: Option<Key>,
        read: impl FnOnce(&Row) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let row = self.ask_row(client, &call, key.as_ref()).await?;
        read(&row.ok_or_else(no_row)?)
    }

    /// The first row.
    pub(crate) async fn ask_row(
        &self,
        client: &impl GenericClient,
        call: &Call,
        key: Option<&Key>,
    ) -> Result<Option<Row>, StoreError> {
        let sent = self.clock().sending();
        let rows = query(client, call).await;
        let rows = rows.map_err(|error| of_statement(error, key))?;
        let row = rows.into_iter().next();
        if let Some(at) = row.as_ref().and_then(answer::at) {
            self.clock().observe(sent, at);
        }
        Ok(row)
    }
}

/// A transaction that was refused cannot be committed, whatever becomes of the error. One trip more, for who is
/// refused.
async fn bar(
    client: &impl GenericClient,
    answer: Result<(), TransactionError>,
) -> Result<(), TransactionError> {
    if answer.is_err() {
        // It fails: that is its purpose. Without a connection there is nothing to commit.
        let _ = client.batch_execute(BAR_COMMIT).await;
    }
    answer
}
