//! Calls to etcd, bounded in time, and what their failures mean.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::{
    Client, Error, GetOptions, GetResponse, KvClient, LeaseGrantResponse, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};
use futures_util::future::{join_all, try_join_all};
use tokio::time::{Instant, timeout_at};
use tower_claim::StoreError;

use crate::errors::{is_final, is_lease_gone, never_sent, of_read, of_write};

/// The connection, and how long a call may take.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) client: Client,
    pub(crate) limit: Duration,
}

/// The end of one call of the store, however many trips it makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// Half of what is left: so a node that hangs leaves time to ask another.
    fn attempt(&self) -> Instant {
        let now = Instant::now();
        now + (self.at.saturating_duration_since(now) / 2).max(self.limit / 8)
    }

    fn has_passed(&self) -> bool {
        Instant::now() >= self.at
    }
}

/// A read of many keys carries all their results: more than the 4 MiB that gRPC takes by default.
const LARGEST_ANSWER: usize = 1 << 30;

impl Calls {
    fn kv(&self) -> KvClient {
        let kv = self.client.kv_client();
        kv.max_decoding_message_size(LARGEST_ANSWER)
    }

    pub(crate) fn deadline(&self) -> Deadline {
        Deadline {
            at: Instant::now() + self.limit,
            limit: self.limit,
        }
    }

    /// A read, which may be repeated at will: fails only as unavailable.
    pub(crate) async fn get(
        &self,
        deadline: Deadline,
        key: String,
        options: GetOptions,
    ) -> Result<GetResponse, StoreError> {
        again(deadline, || {
            let (mut kv, key, options) = (self.kv(), key.clone(), options.clone());
            async move { kv.get(key, Some(options)).await }
        })
        .await
    }

    /// Several reads at one revision.
    pub(crate) async fn read(
        &self,
        deadline: Deadline,
        ops: Vec<TxnOp>,
    ) -> Result<(i64, Vec<TxnOpResponse>), StoreError> {
        let answer = again(deadline, || {
            let (mut kv, txn) = (self.kv(), Txn::new().and_then(ops.clone()));
            async move { kv.txn(txn).await }
        })
        .await?;
        Ok((revision(&answer), answer.op_responses()))
    }

    /// A transaction that writes, sent once; again only where it was certainly not applied.
    pub(crate) async fn write(
        &self,
        deadline: Deadline,
        txn: Txn,
    ) -> Result<TxnResponse, StoreError> {
        for attempt in 0.. {
            let mut kv = self.kv();
            let error = match timeout_at(deadline.at, kv.txn(txn.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => return Err(out_of_time(deadline)),
            };
            if attempt >= 4 || deadline.has_passed() || !never_sent(&error) {
                return Err(of_write(error));
            }
            a_moment(deadline).await;
        }
        Err(out_of_time(deadline))
    }

    /// Leases of these spans in seconds, all at once. One that is granted twice, after a lost reply, ends by
    /// itself.
    pub(crate) async fn grant(
        &self,
        deadline: Deadline,
        spans: &[u64],
    ) -> Result<Vec<LeaseGrantResponse>, StoreError> {
        let grants = spans.iter().map(|secs| {
            let secs = i64::try_from(*secs).unwrap_or(i64::MAX);
            again(deadline, move || {
                let mut leases = self.client.lease_client();
                async move { leases.grant(secs, None).await }
            })
        });
        try_join_all(grants).await
    }

    /// Leases that carry nothing any more: a kindness, nothing depends on it.
    pub(crate) async fn revoke(&self, leases: Vec<i64>) {
        let deadline = self.deadline();
        let revokes = leases.into_iter().map(|id| async move {
            let mut client = self.client.lease_client();
            let _ = timeout_at(deadline.at, client.revoke(id)).await;
        });
        join_all(revokes).await;
    }

    /// Keeps a lease alive. False where it is gone.
    pub(crate) async fn keep_alive(&self, deadline: Deadline, id: i64) -> Result<bool, StoreError> {
        again(deadline, || {
            let mut leases = self.client.lease_client();
            async move {
                match leases.keep_alive(id).await {
                    Ok(_) => Ok(true),
                    Err(Error::LeaseKeepAliveError(_)) => Ok(false),
                    Err(error) if is_lease_gone(&error) => Ok(false),
                    Err(error) => Err(error),
                }
            }
        })
        .await
    }

    /// How long a lease still lasts at least, counted from before this call.
    pub(crate) async fn lease_left(
        &self,
        deadline: Deadline,
        id: i64,
    ) -> Result<Duration, StoreError> {
        let left = again(deadline, || {
            let mut leases = self.client.lease_client();
            async move { leases.time_to_live(id, None).await }
        })
        .await?;
        // Below zero once it has ended.
        Ok(Duration::from_secs(u64::try_from(left.ttl()).unwrap_or(0)))
    }
}

/// Asks again, at another node perhaps, what has no effect that counts.
async fn again<T, F>(deadline: Deadline, call: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut last = None;
    for _ in 0..5 {
        match timeout_at(deadline.attempt(), call()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if is_final(&error) => return Err(of_read(error)),
            Ok(Err(error)) => last = Some(of_read(error)),
            Err(_) => {}
        }
        if deadline.has_passed() {
            break;
        }
        a_moment(deadline).await;
    }
    Err(last.unwrap_or_else(|| {
        let limit = deadline.limit;
        StoreError::unavailable(format!("no answer within the call timeout of {limit:?}"))
    }))
}

/// An election takes longer than the next call; a few of them do not.
async fn a_moment(deadline: Deadline) {
    let pause = (deadline.limit / 16).min(Duration::from_millis(100));
    let _ = timeout_at(deadline.at, tokio::time::sleep(pause)).await;
}

pub(crate) fn revision(answer: &TxnResponse) -> i64 {
    answer.header().map_or(0, |header| header.revision())
}

fn out_of_time(deadline: Deadline) -> StoreError {
    let limit = deadline.limit;
    StoreError::ambiguous(format!("no answer within the call timeout of {limit:?}"))
}

/// The shortest lease that the server grants, as far as it is known, in seconds.
#[derive(Debug)]
pub(crate) struct Least(AtomicU64);

impl Least {
    pub(crate) fn new(secs: u64) -> Self {
        Self(AtomicU64::new(secs))
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// True where the server grants no lease as short as was believed.
    pub(crate) fn learn(&self, asked: u64, granted: i64) -> bool {
        let granted = u64::try_from(granted).unwrap_or(0);
        granted > asked && self.0.fetch_max(granted, Ordering::Relaxed) < granted
    }
}
