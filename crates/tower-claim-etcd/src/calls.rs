//! Calls to etcd, bounded in time, and what their failures mean.

use std::sync::Arc;
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
use crate::members::Members;

/// The connections, and how long a call may take.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) members: Arc<Members>,
    pub(crate) limit: Duration,
}

/// The end of one call of the store, however many trips it makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// A part of what is left, so a member that hangs leaves time to ask another: little where another can be
    /// asked at once, more once others were tried.
    fn attempt(&self, tried: usize, members: usize) -> Instant {
        let now = Instant::now();
        let left = self.at.saturating_duration_since(now);
        let part = match tried {
            0 if members > 1 => left / 4,
            _ => left / 2,
        };
        now + part.max(self.limit / 8)
    }

    fn has_passed(&self) -> bool {
        Instant::now() >= self.at
    }
}

/// A read of many keys carries all their results: more than the 4 MiB that gRPC takes by default.
const LARGEST_ANSWER: usize = 1 << 30;

fn kv(client: &Client) -> KvClient {
    let kv = client.kv_client();
    kv.max_decoding_message_size(LARGEST_ANSWER)
}

impl Calls {
    pub(crate) fn new(members: Members, limit: Duration) -> Self {
        let members = Arc::new(members);
        Self { members, limit }
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
        key: impl Into<Vec<u8>>,
        options: GetOptions,
    ) -> Result<GetResponse, StoreError> {
        let key = key.into();
        self.again(deadline, |client| {
            let (mut kv, key, options) = (kv(&client), key.clone(), options.clone());
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
        let answer = self.again(deadline, |client| {
            let (mut kv, txn) = (kv(&client), Txn::new().and_then(ops.clone()));
            async move { kv.txn(txn).await }
        });
        let answer = answer.await?;
        Ok((revision(&answer), answer.op_responses()))
    }

    /// A transaction that writes, sent once; again only where it was certainly not applied.
    pub(crate) async fn write(
        &self,
        deadline: Deadline,
        txn: Txn,
    ) -> Result<TxnResponse, StoreError> {
        let mut last = None;
        for tried in 0..self.members.tries() {
            let turn = self.members.turn();
            let attempt = deadline.attempt(tried, self.members.len());
            match timeout_at(attempt, self.members.client(turn)).await {
                Ok(Ok(client)) => {
                    let mut kv = kv(&client);
                    match timeout_at(deadline.at, kv.txn(txn.clone())).await {
                        Ok(Ok(answer)) => return Ok(answer),
                        Ok(Err(error)) if never_sent(&error) => last = Some(of_read(error)),
                        Ok(Err(error)) => {
                            self.members.pass(turn);
                            return Err(of_write(error));
                        }
                        Err(_) => {
                            self.members.pass(turn);
                            return Err(out_of_time(deadline));
                        }
                    }
                }
                Ok(Err(error)) if is_final(&error) => return Err(of_read(error)),
                Ok(Err(error)) => last = Some(of_read(error)),
                // It said nothing: what another said stays.
                Err(_) => {}
            }
            self.members.pass(turn);
            if deadline.has_passed() {
                break;
            }
            a_moment(deadline).await;
        }
        Err(last.unwrap_or_else(|| unanswered(deadline)))
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
            self.again(deadline, move |client| {
                let mut leases = client.lease_client();
                async move { leases.grant(secs, None).await }
            })
        });
        try_join_all(grants).await
    }

    /// Leases that carry nothing any more: a kindness, nothing depends on it.
    pub(crate) async fn revoke(&self, leases: Vec<i64>) {
        let deadline = self.deadline();
        let revokes = leases.into_iter().map(|id| async move {
            let revoke = async {
                let client = self.members.client(self.members.turn()).await?;
                client.lease_client().revoke(id).await
            };
            let _ = timeout_at(deadline.at, revoke).await;
        });
        join_all(revokes).await;
    }

    /// Keeps a lease alive. False where it is gone.
    pub(crate) async fn keep_alive(&self, deadline: Deadline, id: i64) -> Result<bool, StoreError> {
        self.again(deadline, |client| {
            let mut leases = client.lease_client();
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
        let left = self.again(deadline, |client| {
            let mut leases = client.lease_client();
            async move { leases.time_to_live(id, None).await }
        });
        let left = left.await?;
        // Below zero once it has ended.
        Ok(Duration::from_secs(u64::try_from(left.ttl()).unwrap_or(0)))
    }

    /// Asks again, at another member where there is one, what has no effect that counts.
    async fn again<T, F>(
        &self,
        deadline: Deadline,
        call: impl Fn(Client) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut last = None;
        for tried in 0..self.members.tries() {
            let turn = self.members.turn();
            let attempt = async { call(self.members.client(turn).await?).await };
            let until = deadline.attempt(tried, self.members.len());
            match timeout_at(until, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if is_final(&error) => return Err(of_read(error)),
                Ok(Err(error)) => {
                    self.members.pass(turn);
                    last = Some(of_read(error));
                    a_moment(deadline).await;
                }
                // Long enough: the next one is asked at once.
                Err(_) => self.members.pass(turn),
            }
            if deadline.has_passed() {
                break;
            }
        }
        Err(last.unwrap_or_else(|| unanswered(deadline)))
    }
}

/// An election takes longer than the next call; a few of them do not.
async fn a_moment(deadline: Deadline) {
    let pause = (deadline.limit / 16).min(Duration::from_millis(100));
    let _ = timeout_at(deadline.at, tokio::time::sleep(pause)).await;
}

pub(crate) fn revision(answer: &TxnResponse) -> i64 {
    answer.header().map_or(0, |header| header.revision())
}

/// Of what had no effect.
fn unanswered(deadline: Deadline) -> StoreError {
    let limit = deadline.limit;
    StoreError::unavailable(format!("no answer within the call timeout of {limit:?}"))
}

/// Of what may have been applied.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a write that reached nobody the last refusal is told, not the call timeout, which has not passed.
    #[tokio::test]
    async fn a_write_that_every_try_was_refused_tells_the_refusal() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", nobody.local_addr().unwrap());
        drop(nobody);
        let client = Client::connect([endpoint], None).await.unwrap();
        let calls = Calls::new(Members::new(vec![client], None), Duration::from_secs(60));
        let error = calls.write(calls.deadline(), Txn::new()).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("refused"), "{source}");
    }
}
