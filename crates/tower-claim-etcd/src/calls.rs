//! Calls to etcd, bounded in time, and what their failures mean.

use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::{
    Client, Error, GetOptions, GetResponse, LeaseGrantResponse, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use futures_util::future::{join_all, try_join_all};
use tokio::time::{Instant, timeout_at};
use tower_claim::StoreError;

use crate::plan::Plan;

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

impl Calls {
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
            let (mut kv, key, options) = (self.client.kv_client(), key.clone(), options.clone());
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
            let (mut kv, txn) = (self.client.kv_client(), Txn::new().and_then(ops.clone()));
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
            let mut kv = self.client.kv_client();
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

    /// The leases of a plan, all at once. One that is granted twice, after a lost reply, ends by itself.
    pub(crate) async fn grant(
        &self,
        deadline: Deadline,
        plan: &Plan,
    ) -> Result<Vec<LeaseGrantResponse>, StoreError> {
        let grants = plan.grants.iter().map(|secs| {
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

    /// Keeps leases alive, in this order. False where one is gone.
    pub(crate) async fn keep_alive(
        &self,
        deadline: Deadline,
        leases: &[i64],
    ) -> Result<bool, StoreError> {
        for id in leases {
            let (client, id) = (&self.client, *id);
            let kept = again(deadline, || {
                let mut leases = client.lease_client();
                async move {
                    match leases.keep_alive(id).await {
                        Ok(_) => Ok(true),
                        Err(Error::LeaseKeepAliveError(_)) => Ok(false),
                        Err(error) if is_lease_gone(&error) => Ok(false),
                        Err(error) => Err(error),
                    }
                }
            });
            if !kept.await? {
                return Ok(false);
            }
        }
        Ok(true)
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

/// gRPC's codes, by number: `tonic` is no dependency of ours.
fn code(error: &Error) -> Option<i32> {
    match error {
        Error::GRpcStatus(status) => Some(i32::from(status.code())),
        _ => None,
    }
}

const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNIMPLEMENTED: i32 = 12;
const UNAUTHENTICATED: i32 = 16;

/// An answer of etcd's own that a transaction was refused whole. By its words too: a connection that broke
/// may carry the same codes (HTTP/2's `ENHANCE_YOUR_CALM` is told as an exhausted resource), and then the
/// transaction may have been applied.
fn is_refused(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return false;
    };
    let by_etcd = status.message().starts_with("etcdserver: ");
    by_etcd
        && matches!(
            code(error),
            Some(
                INVALID_ARGUMENT
                    | NOT_FOUND
                    | PERMISSION_DENIED
                    | RESOURCE_EXHAUSTED
                    | FAILED_PRECONDITION
                    | OUT_OF_RANGE
                    | UNAUTHENTICATED
            )
        )
}

/// Whether asking again is in vain.
fn is_final(error: &Error) -> bool {
    matches!(
        code(error),
        Some(INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | UNIMPLEMENTED | UNAUTHENTICATED)
    )
}

fn is_lease_gone(error: &Error) -> bool {
    code(error) == Some(NOT_FOUND)
}

/// Whether the call did not leave this machine: no connection could be made. (A connection that breaks
/// has other words.)
fn never_sent(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return matches!(
            error,
            Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_)
        );
    };
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        cause = error.source();
    }
    false
}

fn of_read(error: Error) -> StoreError {
    StoreError::unavailable(Failed::of(&error))
}

fn of_write(error: Error) -> StoreError {
    if code(&error) == Some(RESOURCE_EXHAUSTED) && error.to_string().contains("space exceeded") {
        StoreError::Full
    } else if is_refused(&error) || never_sent(&error) {
        StoreError::unavailable(Failed::of(&error))
    } else {
        StoreError::ambiguous(Failed::of(&error))
    }
}

/// What a failed call said, in one line, with the mend where one is known.
#[derive(Debug)]
pub(crate) struct Failed(String);

impl Failed {
    pub(crate) fn of(error: &Error) -> Self {
        let Error::GRpcStatus(status) = error else {
            return Self(error.to_string());
        };
        let mut text = status.message().to_owned();
        let mut cause = status.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = error.source();
        }
        let mend = match i32::from(status.code()) {
            UNIMPLEMENTED => " (the server is not etcd 3.4 or newer)",
            PERMISSION_DENIED => " (the user needs read and write on the store's prefix)",
            UNAUTHENTICATED => " (give user and password with `user`)",
            INVALID_ARGUMENT if text.contains("user name is empty") => {
                " (the server demands a user: give one with `user`)"
            }
            INVALID_ARGUMENT if text.contains("authentication failed") => {
                " (wrong user or password)"
            }
            _ => "",
        };
        Self(format!("{text}{mend}"))
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

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
