//! The store: what it promises, and how its calls go out.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_postgres::Row;
use tower_claim::engine::EngineClock;
use tower_claim::store::{Capabilities, Event, MultiKey, Promise};
use tower_claim::{Key, StoreError};

use crate::calls::{Calls, only};
use crate::link::Link;
use crate::listener::{Listener, Task};
use crate::statement::{Call, Statements, answer};
use crate::{ConnectError, PostgresStoreBuilder};

/// Records that the background looks at in one statement.
const PURGE_BATCH: usize = 500;

/// Keeps claims, and the marks of a guard, in PostgreSQL. Clones are one store.
///
/// | Promise | |
/// |---|---|
/// | forgets what it answered | after a flush |
/// | outlives the process | yes |
/// | several keys at once | atomic, any keys |
/// | heartbeats | independent of the user's runtime |
/// | smallest span of time | 1 µs |
/// | clock | the server's |
/// | weakened by a flush | rising tokens, one owner, one result |
/// | weakened by a failover | nothing |
/// | weakened by a moved clock | rising tokens, one owner, one result, claimable again |
/// | weakened by a restart | nothing |
///
/// That is one server that keeps what it committed. Where its settings say otherwise, the store sees it as it
/// connects, warns, and says so in [`capabilities`](tower_claim::ClaimStore::capabilities):
///
/// | Seen | Adds |
/// |---|---|
/// | `synchronous_commit = off`, `fsync = off`, tables made `UNLOGGED` | weakened by a restart: rising tokens, one owner, one result |
/// | replicas that are not waited for (no `synchronous_standby_names`, or `synchronous_commit = local`) | weakened by a failover: rising tokens, one owner, one result |
///
/// Both make [`may_forget`](Capabilities::may_forget) true, and a layer that must not forget refuses to build. A
/// replica that comes later is not seen: say
/// [`asynchronous_failover`](PostgresStoreBuilder::asynchronous_failover) then, or where replicas are never
/// promoted. What a transaction of yours sets for itself (`SET LOCAL synchronous_commit`) counts for what is
/// finished in it, and is not seen either. With your own pool and no URL, heartbeats stall with your runtime.
///
/// Tokens rise over restart, `TRUNCATE` and failover by their clock part, and no purge drops a record whose
/// token is ahead of the clock. One ahead of it (raised by a floor, or granted before the clock was stepped back)
/// falls where the record is flushed or lost in a failover: the guard refuses the lower one, and its owner claims
/// anew with the guard's mark as the floor.
///
/// # Statements
///
/// Every call is one statement that commits by itself and leaves nothing in the session: a pooler in transaction
/// mode may stand between. A claim of a key that is held, done or unknown reads, locks nothing and writes
/// nothing. What may wait for a row that another transaction has locked waits for half the call timeout, and is
/// then *unavailable*, not applied; a renewal never waits: it is answered [`Renewed::Unsure`](tower_claim::store::Renewed::Unsure).
///
/// # Cancellation
///
/// A dropped call may be applied all the same. Its connection goes back to the pool, a call that
/// timed out gives up its own.
///
/// # Tasks
///
/// Connections are driven by tasks on the runtime that made them. One more purges ([every
/// minute](PostgresStoreBuilder::purge_every)), one listens once somebody [watches](tower_claim::ClaimStore::watch); both end
/// with the last clone.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) calls: Calls,
    /// What waits for no lock has, in a keeper, nothing to wait behind either.
    pub(crate) beats: Calls,
    /// How a keeper connects.
    pub(crate) link: Option<Link>,
    pub(crate) statements: Statements,
    pub(crate) clock: Arc<EngineClock>,
    pub(crate) poll: Duration,
    pub(crate) listener: Arc<Listener>,
    pub(crate) capabilities: Capabilities,
    pub(crate) _purger: Option<Task>,
}

impl PostgresStore {
    /// Of one server that answers what is on disk. [`capabilities`](tower_claim::ClaimStore::capabilities) has what the settings and
    /// the server change in it.
    pub const CAPABILITIES: Capabilities = Capabilities::new("postgres")
        .with_multi_key(MultiKey::Atomic)
        .with_weakened(Event::Flush, Self::FORGETS)
        .with_weakened(Event::MovedClock, Promise::ALL);

    /// What goes with a record that is gone: also the floor that its token was granted above.
    pub(crate) const FORGETS: &[Promise] =
        &[Promise::RisingTokens, Promise::OneOwner, Promise::OneResult];

    /// Connects with the default settings to tables that were migrated.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], whose text says the mend.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().url(url).connect().await
    }

    /// Makes the default tables where they are missing. See [`PostgresStoreBuilder::migrate`].
    ///
    /// # Errors
    ///
    /// [`ConnectError`], whose text says the mend.
    pub async fn migrate(url: &str) -> Result<(), ConnectError> {
        Self::builder().url(url).migrate().await
    }

    /// A store with settings of its own.
    pub fn builder() -> PostgresStoreBuilder {
        PostgresStoreBuilder::default()
    }

    /// The store's statements, for who sends them over another driver.
    pub fn statements(&self) -> &Statements {
        &self.inner.statements
    }

    /// Looks at so many records that are due, and drops those with nothing left to say; answers how many it
    /// dropped, and whether there may be more. Changes no answer. Several processes may purge at once.
    ///
    /// # Errors
    ///
    /// As for every call.
    pub async fn purge_ended(&self, batch: usize) -> Result<PurgedEnded, StoreError> {
        let call = self.inner.statements.purge_ended(batch.max(1));
        let (seen, dropped) = answer::purged_ended(only(&self.send(&call, None).await?)?)?;
        Ok(PurgedEnded {
            dropped,
            more: seen >= batch as u64,
        })
    }

    pub(crate) fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    pub(crate) async fn purge_for_life(inner: Weak<Inner>, pause: Duration) {
        loop {
            tokio::time::sleep(pause).await;
            loop {
                let Some(inner) = inner.upgrade() else { return };
                match Self::from_inner(inner).purge_ended(PURGE_BATCH).await {
                    Ok(PurgedEnded { more: true, .. }) => tokio::task::yield_now().await,
                    Ok(_) => break,
                    Err(error) => {
                        tracing::debug!(%error, "a purge failed: the next one makes up for it");
                        break;
                    }
                }
            }
        }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn clock(&self) -> &EngineClock {
        &self.inner.clock
    }

    pub(crate) async fn send(
        &self,
        call: &Call,
        key: Option<&Key>,
    ) -> Result<Vec<Row>, StoreError> {
        self.inner.calls.send(&self.inner.clock, call, key).await
    }

    pub(crate) async fn ask<T>(
        &self,
        key: &Key,
        call: Call,
        read: impl FnOnce(&Key, &Row) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let rows = self.send(&call, Some(key)).await?;
        read(key, only(&rows)?)
    }

    /// The answers of a batch, in the order of the requests.
    pub(crate) async fn ask_each<T>(
        &self,
        calls: &Calls,
        keys: Vec<Key>,
        call: Call,
        read: impl Fn(&Key, &Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let rows = calls.send(&self.inner.clock, &call, None).await?;
        let mut answers: Vec<Option<T>> = keys.iter().map(|_| None).collect();
        for row in &rows {
            let place = answer::place(row)?;
            if let (Some(slot), Some(key)) = (answers.get_mut(place), keys.get(place)) {
                *slot = Some(read(key, row)?);
            }
        }
        let all: Option<Vec<T>> = answers.into_iter().collect();
        all.ok_or_else(|| StoreError::Garbled {
            key_prefix: String::new(),
            source: "a batch that was answered in part".into(),
        })
    }
}

/// What a [purge of ended records](PostgresStore::purge_ended) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgedEnded {
    /// Records that went.
    pub dropped: u64,
    /// Whether the batch was full: there may be more that are due.
    pub more: bool,
}
