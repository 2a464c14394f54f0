//! A transaction that is lent to a handler: how it begins with a claim, and how it ends. The same over every driver.
//!
//! For the crates of this family: what is in here may change with any version.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tower_claim::store::{Busy, ClaimRequest, Claimed, Finish, FinishRequest};
use tower_claim::transaction::{CommitError, OpenTransaction, TransactionSlot};
use tower_claim::{Key, StoreError, Token};

use crate::calls::no_row;
use crate::statement::{Call, Columns, Statements, answer, came_second};

/// How many snapshots a claim is tried in, where each is older than what others committed meanwhile.
const SNAPSHOTS: u32 = 4;

/// Gone with the transaction that it is sent in, whoever ends that, and however: by a statement of the handler's, by a
/// driver that cleans up behind a future that was dropped. The next one has it only if it is lent as well.
const LENT: &str = "set local tower_claim.lent = 'yes'";
/// Of a statement that does nothing outside of a transaction that was lent.
pub(crate) const WHERE_LENT: &str = "where current_setting('tower_claim.lent', true) = 'yes'";

/// What begins a transaction that is to be lent, by this statement: one message.
pub fn beginning(statement: &str) -> String {
    format!("{statement};\n{LENT}")
}

/// A driver's connection, in a transaction. Dropped, it rolls back.
pub trait Session: Send + 'static {
    /// A row.
    type Answer: Columns + Send;

    /// Of the tables that the claims are in.
    fn statements(&self) -> &Statements;

    /// The first row that the statement answers.
    fn ask(
        &mut self,
        key: Option<&Key>,
        call: &Call,
    ) -> impl Future<Output = Result<Option<Self::Answer>, StoreError>> + Send;

    /// Commits all, or nothing: also where the handler left something nested open. Whatever is answered but
    /// [`StoreError::Ambiguous`], the transaction is over.
    fn commit(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// All of it, however deep. Where the server does not answer, the drop does the rest.
    fn roll_back(&mut self) -> impl Future<Output = ()> + Send;
}

/// A session to be lent.
#[derive(Debug)]
pub struct Open<S>(pub S);

impl<S: Session> Open<S> {
    async fn claim(&mut self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        let call = self.0.statements().claim_in(&request);
        let row = self.0.ask(Some(&request.key), &call).await?;
        answer::claimed(&request.key, &row.ok_or_else(no_row)?)
    }

    async fn finish(&mut self, request: &FinishRequest) -> Result<(), CommitError> {
        let key = request.owner.key;
        let call = self.0.statements().finish_lent(request);
        let row = self.0.ask(Some(&key), &call).await.map_err(not_committed)?;
        let row = row.ok_or(CommitError::Ended)?;
        match answer::finished(&key, &row).map_err(not_committed)? {
            Finish::Finished => Ok(()),
            _ => Err(CommitError::Lost),
        }
    }

    async fn commit_finished(mut self, request: FinishRequest) -> Result<(), CommitError> {
        if let Err(error) = self.finish(&request).await {
            // Nothing was committed, whatever became of the statement.
            self.0.roll_back().await;
            return Err(error);
        }
        self.0.commit().await.map_err(in_doubt_or_not)
    }

    async fn commit_alone(mut self) -> Result<(), CommitError> {
        // Behind a statement that failed, a commit rolls back and says so by no error; so this one is to fail.
        let call = self.0.statements().is_lent();
        let lent = self.0.ask(None, &call).await.map_err(not_committed);
        if let Err(error) = lent.and_then(|row| row.ok_or(CommitError::Ended)) {
            self.0.roll_back().await;
            return Err(error);
        }
        self.0.commit().await.map_err(in_doubt_or_not)
    }
}

fn in_doubt_or_not(error: StoreError) -> CommitError {
    match error {
        StoreError::Ambiguous(_) => CommitError::InDoubt(error.into()),
        error => not_committed(error),
    }
}

fn not_committed(error: StoreError) -> CommitError {
    if came_second(&error) {
        CommitError::CameSecond(error.into())
    } else {
        CommitError::RolledBack(error.into())
    }
}

/// The claim is the first statement, so a transaction whose snapshot is older than another's commit begins anew; and
/// where others are ahead of it time and again, the key is busy.
///
/// # Errors
///
/// Of [`begin_with_claim`](tower_claim::transaction::BeginWithClaim::begin_with_claim).
pub async fn begin_and_claim<S, F>(
    begin: impl Fn() -> F,
    request: ClaimRequest<'_>,
    slot: &TransactionSlot,
) -> Result<Claimed, StoreError>
where
    S: Session,
    F: Future<Output = Result<S, StoreError>>,
{
    for _ in 0..SNAPSHOTS {
        let mut open = Open(begin().await?);
        match open.claim(request).await {
            Ok(granted @ Claimed::Granted(_)) => {
                slot.lay_out(open).map_err(StoreError::unavailable)?;
                return Ok(granted);
            }
            Ok(refused) => {
                open.0.roll_back().await;
                return Ok(refused);
            }
            Err(error) if came_second(&error) => open.0.roll_back().await,
            Err(error) => return Err(error),
        }
    }
    // The database works, and others were at the key each time. What they are about is not known.
    Ok(Claimed::Busy(Busy {
        token: Token::ZERO,
        since: Duration::ZERO,
        expires_in: Duration::ZERO,
        same_fingerprint: true,
        label: "".into(),
    }))
}

impl<S: Session> OpenTransaction for Open<S> {
    fn commit_with(
        self: Box<Self>,
        finish: FinishRequest,
    ) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(self.commit_finished(finish))
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), CommitError>> {
        Box::pin(self.commit_alone())
    }

    fn roll_back(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.0.roll_back().await })
    }
}

impl<S> Deref for Open<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S> DerefMut for Open<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0
    }
}
