//! The store: its calls, each a read, a [move](crate::moves), and a write if there is one to make.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etcd_client::GetOptions;
use tower_claim::engine::Bells;
use tower_claim::store::{
    Beat, Capabilities, ClaimRequest, Claimed, Event, Finish, FinishRequest, JudgingClock,
    KeeperConnection, Marked, MultiKey, Owner, Promise, RecordView, Release, ReleaseRequest,
    Renewed, StoreTime, Value, Watched,
};
use tower_claim::{ClaimStore, Clock, DynClaimStore, Key, Nonce, StoreError, SystemClock, Token};

use crate::builder::{Config, ConnectError, EtcdStoreBuilder};
use crate::calls::{Calls, Deadline, Least};
use crate::doubts::Doubts;
use crate::keys::Keys;
use crate::moves::{self, Ask, Step};
use crate::plan::secs;
use crate::record::Seen;
use crate::watch::Watcher;
use crate::write::{Pending, TRIES, Written, too_busy};

/// Beyond everything that the memory of a nonce must outlive: for leases that etcd ends late.
const SLACK_SECS: u64 = 5;

#[doc = include_str!("../docs/store.md")]
#[derive(Clone)]
pub struct EtcdStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) calls: Calls,
    pub(crate) keys: Keys,
    pub(crate) poll: Duration,
    pub(crate) bells: Arc<Bells>,
    pub(crate) watcher: Watcher,
    config: Config,
    pub(crate) least: Least,
    pub(crate) doubts: Arc<Doubts>,
}

impl EtcdStore {
    /// What it promises: the table above, in code.
    pub const CAPABILITIES: Capabilities = Capabilities::new("etcd")
        .with_multi_key(MultiKey::Atomic)
        .with_time_unit(Duration::from_secs(1))
        .with_clock(JudgingClock::Leases)
        .with_weakened(
            Event::Flush,
            &[Promise::RisingTokens, Promise::OneOwner, Promise::OneResult],
        );

    /// Connects with the defaults of [`builder`](Self::builder). `endpoints`: one or several, by commas, as
    /// `http://10.0.0.1:2379,http://10.0.0.2:2379`.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], whose text says what to mend: no etcd there, no leader, a missing user.
    pub async fn connect(endpoints: &str) -> Result<Self, ConnectError> {
        Self::builder()
            .endpoints(endpoints.split(','))
            .connect()
            .await
    }

    /// Settings one by one.
    pub fn builder() -> EtcdStoreBuilder {
        EtcdStoreBuilder::new()
    }

    pub(crate) async fn open(config: Config, shared: Option<&Inner>) -> Result<Self, ConnectError> {
        let calls = config.calls().await?;
        let keys = Keys::new(&config.prefix);
        let deadline = calls.deadline();
        let only = GetOptions::new()
            .with_limit(1)
            .with_keys_only()
            .with_range(keys.end());
        calls.get(deadline, keys.all(), only).await?;
        // The server may grant no lease as short as it is asked for.
        let granted = calls.grant(deadline, &[1]).await?;
        let least = Least::new(1);
        for lease in granted {
            least.learn(1, lease.ttl());
            calls.revoke(vec![lease.id()]).await;
        }
        let doubts = shared.map(|inner| Arc::clone(&inner.doubts));
        Ok(Self {
            inner: Arc::new(Inner {
                calls,
                keys,
                poll: config.poll,
                bells: Arc::new(Bells::new()),
                watcher: Watcher::default(),
                config,
                least,
                doubts: doubts.unwrap_or_default(),
            }),
        })
    }
}

impl Inner {
    pub(crate) fn now(&self) -> StoreTime {
        let micros = SystemClock.now().elapsed().as_micros();
        StoreTime::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Until `not_after`, and beyond the death of every transaction that may carry the nonce.
    pub(crate) fn spent_secs(&self, not_after: StoreTime, lease_secs: u64) -> u64 {
        let under_way = secs(not_after.saturating_since(self.now()));
        under_way
            .saturating_add(lease_secs)
            .saturating_add(SLACK_SECS)
    }

    pub(crate) fn least_secs(&self) -> u64 {
        self.least.get()
    }

    pub(crate) async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        let lease_secs = self.doubts.lease_secs(request.key, request.nonce);
        let released = self.change(request.key, Some(request.nonce), |seen, now| {
            let spent_secs = self.spent_secs(request.not_after, lease_secs);
            Ok(moves::release(seen, &request, spent_secs, now))
        });
        let released = released.await?;
        self.doubts.settle(request.key, request.nonce);
        Ok(released)
    }

    /// What is left of a lease is etcd's to say: an owner counts its deadline from it, and a wall clock that
    /// was moved would make two believers.
    pub(crate) async fn judged(
        &self,
        deadline: Deadline,
        seen: &Seen,
        answer: Claimed,
    ) -> Result<Claimed, StoreError> {
        let (
            Claimed::Mine {
                token,
                rest: most,
                attempt,
            },
            Some(lease),
        ) = (&answer, seen.live)
        else {
            return Ok(answer);
        };
        Ok(Claimed::Mine {
            token: *token,
            rest: self.calls.lease_left(deadline, lease).await?.min(*most),
            attempt: *attempt,
        })
    }

    /// No copy of this claim is in doubt.
    pub(crate) fn heard(&self, key: Key, nonce: Nonce) {
        self.doubts.settle(key, nonce);
    }
}

/// For people: no decision hangs on it.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

impl ClaimStore for EtcdStore {
    fn capabilities(&self) -> Capabilities {
        let keeper = match self.inner.config.has_endpoints() {
            true => KeeperConnection::Own,
            false => KeeperConnection::Shared,
        };
        Self::CAPABILITIES.with_keeper(keeper)
    }

    /// This process's time: instants are compared by the process that made them only.
    fn now(&self) -> StoreTime {
        self.inner.now()
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        let (inner, key, nonce) = (&self.inner, request.key, request.nonce);
        let deadline = inner.calls.deadline();
        for _ in 0..TRIES {
            if inner.now() > request.not_after {
                return Ok(Claimed::TooLate);
            }
            let seen = inner.look_at(deadline, key, Some(nonce)).await?;
            let mut ask = Ask::of(&request, 0, inner.least_secs());
            ask.spent_secs = inner.spent_secs(request.not_after, ask.lease_secs());
            let (plan, done) = match moves::claim(&seen, &ask, unix_ms())? {
                Step::Answer(answer) => {
                    inner.heard(key, nonce);
                    return inner.judged(deadline, &seen, answer).await;
                }
                Step::Change(plan, done) => (plan, done),
            };
            let pending = Pending {
                key,
                nonce: Some(nonce),
                seen: &seen,
                plan,
            };
            let claim = Some((ask.lease_secs(), request.not_after));
            match inner.write(deadline, claim, &[pending]).await? {
                Written::Yes(token) => return Ok(done(token)),
                Written::Raced => {}
                Written::TooLate => return Ok(Claimed::TooLate),
            }
        }
        Err(too_busy())
    }

    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        self.inner.renew(beats).await
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        let mark = |seen: &Seen, _| Ok(moves::mark(seen, owner));
        self.inner.change(owner.key, None, mark).await
    }

    async fn finish(&self, request: FinishRequest) -> Result<Finish, StoreError> {
        let key = request.owner.key;
        let finish = |seen: &Seen, now| Ok(moves::finish(seen, &request, now));
        match self.inner.change(key, None, finish).await {
            // A result that etcd does not take. That the work is done, it does: the outcome is never lost.
            Err(StoreError::Unsupported(_)) if request.value != Value::Tombstone => {
                let without = FinishRequest {
                    value: Value::Tombstone,
                    ..request
                };
                let finish = |seen: &Seen, now| Ok(moves::finish(seen, &without, now));
                self.inner.change(key, None, finish).await
            }
            answer => answer,
        }
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        self.inner.release(request).await
    }

    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        self.inner.watch(key, token).await
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        let deadline = self.inner.calls.deadline();
        let seen = self.inner.look_at(deadline, key, None).await?;
        Ok(seen.peek(key, unix_ms()))
    }

    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        if !self.inner.config.has_endpoints() {
            return Ok(Arc::new(self.clone()));
        }
        let config = self.inner.config.for_keeper();
        match Self::open(config, Some(&self.inner)).await {
            Ok(store) => Ok(Arc::new(store)),
            Err(ConnectError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::unavailable(error)),
        }
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("config", &self.inner.config)
            .finish_non_exhaustive()
    }
}
