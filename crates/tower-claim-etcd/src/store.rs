//! One key: read, move, write what was moved if nothing of what was read has changed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse,
};
use tower_claim::engine::Bells;
use tower_claim::store::{
    Beat, Capabilities, ClaimRequest, Claimed, Event, Finish, FinishRequest, JudgingClock,
    KeeperConnection, Marked, MultiKey, Owner, Promise, RecordView, Release, ReleaseRequest,
    Renewed, StoreTime, Watched,
};
use tower_claim::{
    ClaimStore, Clock, DynClaimStore, Key, Moment, Nonce, StoreError, SystemClock, Token,
};

use crate::builder::{Config, ConnectError, EtcdStoreBuilder};
use crate::bytes::{encode, id};
use crate::calls::{Calls, Deadline, Least, revision};
use crate::keys::{Keys, Read};
use crate::moves::{self, Ask, Step};
use crate::plan::{Plan, Sibling, Write, secs};
use crate::record::Seen;
use crate::watch::Watcher;

/// How often a change that lost a race is tried anew.
const TRIES: usize = 16;
/// Beyond everything that the memory of a nonce must outlive: for leases that etcd ends late.
const SLACK_SECS: u64 = 5;
/// How long a nonce is remembered at least whose claim this process did not send.
const STRANGE_SECS: u64 = 60;

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
    least: Least,
    doubts: Arc<Doubts>,
}

/// A change of one key that waits to be written.
pub(crate) struct Pending<'a> {
    pub(crate) key: Key,
    pub(crate) nonce: Option<Nonce>,
    pub(crate) seen: &'a Seen,
    pub(crate) plan: Plan,
}

/// What became of an attempt to write.
pub(crate) enum Written {
    /// It was, under this token at least.
    Yes(Token),
    /// Something that was read has changed: read again.
    Raced,
    /// It was not sent: its `not_after` has passed.
    TooLate,
}

/// The claims of this process whose answer is missing, and the leases they asked for, in seconds. A
/// transaction that is still under way dies with the etcd lease it carries.
#[derive(Debug, Default)]
struct Doubts(Mutex<HashMap<(Key, Nonce), (u64, Option<Moment>)>>);

impl Doubts {
    fn lock(&self) -> MutexGuard<'_, HashMap<(Key, Nonce), (u64, Option<Moment>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, key: Key, nonce: Nonce, lease_secs: u64) {
        const MANY: usize = 4096;
        let mut all = self.lock();
        let now = SystemClock.now();
        if all.len() >= MANY {
            all.retain(|_, (_, dead)| dead.is_none_or(|dead| now < dead));
        }
        // Thrice: an election begins a lease anew.
        let span = Duration::from_secs(lease_secs.saturating_mul(3).min(1 << 32))
            + Duration::from_secs(60);
        all.insert((key, nonce), (lease_secs, Some(now + span)));
    }

    fn settle(&self, key: Key, nonce: Nonce) {
        self.lock().remove(&(key, nonce));
    }

    fn lease_secs(&self, key: Key, nonce: Nonce) -> u64 {
        let known = self.lock().get(&(key, nonce)).map(|(secs, _)| *secs);
        known.unwrap_or(0).max(STRANGE_SECS)
    }
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
        let mut plan = Plan::default();
        plan.grant(1);
        let granted = calls.grant(deadline, &plan).await?;
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

    /// What stands under keys, all read at one revision.
    pub(crate) async fn look(
        &self,
        deadline: Deadline,
        keys: &[(Key, Option<Nonce>)],
    ) -> Result<Vec<Seen>, StoreError> {
        let mut ops = Vec::with_capacity(keys.len() * 2);
        for (key, nonce) in keys {
            let range = GetOptions::new().with_range(self.keys.after(key));
            ops.push(TxnOp::get(self.keys.of(key), Some(range)));
            if let Some(nonce) = nonce {
                let count = GetOptions::new().with_count_only();
                ops.push(TxnOp::get(self.keys.spent(key, nonce), Some(count)));
            }
        }
        let (revision, answers) = self.calls.read(deadline, ops).await?;
        let mut answers = answers.into_iter().map(|answer| match answer {
            TxnOpResponse::Get(get) => Ok(get),
            _ => Err(StoreError::unavailable("a read answered by something else")),
        });
        let mut next = || {
            let none = || StoreError::unavailable("fewer answers than reads");
            answers.next().ok_or_else(none)?
        };
        let mut all = Vec::with_capacity(keys.len());
        for (key, nonce) in keys {
            let mut seen = self.seen(key, revision, next()?.kvs())?;
            if nonce.is_some() {
                seen.spent = next()?.count() > 0;
            }
            all.push(seen);
        }
        Ok(all)
    }

    pub(crate) fn seen(
        &self,
        key: &Key,
        revision: i64,
        kvs: &[KeyValue],
    ) -> Result<Seen, StoreError> {
        let mut seen = Seen {
            revision,
            ..Seen::default()
        };
        for kv in kvs {
            if let Some((_, name)) = self.keys.parse(kv.key()) {
                let read = Read {
                    name,
                    value: kv.value(),
                    revision: kv.mod_revision(),
                };
                seen.take(&read).map_err(|bad| bad.of(key))?;
            }
        }
        Ok(seen)
    }

    pub(crate) async fn look_at(
        &self,
        deadline: Deadline,
        key: Key,
        nonce: Option<Nonce>,
    ) -> Result<Seen, StoreError> {
        let mut seen = self.look(deadline, &[(key, nonce)]).await?;
        Ok(seen.pop().unwrap_or_default())
    }

    /// Reads, moves and writes, until what was read is what is changed.
    pub(crate) async fn change<T: 'static>(
        &self,
        key: Key,
        nonce: Option<Nonce>,
        step: impl Fn(&Seen, u64) -> Result<Step<T>, StoreError>,
    ) -> Result<T, StoreError> {
        let deadline = self.calls.deadline();
        for _ in 0..TRIES {
            let seen = self.look_at(deadline, key, nonce).await?;
            let (plan, done) = match step(&seen, unix_ms())? {
                Step::Answer(answer) => return Ok(answer),
                Step::Change(plan, done) => (plan, done),
            };
            let pending = Pending {
                key,
                nonce,
                seen: &seen,
                plan,
            };
            if let Written::Yes(token) = self.write(deadline, None, &[pending]).await? {
                return Ok(done(token));
            }
        }
        Err(too_busy())
    }

    /// Everything that is pending, or nothing. `claim`: its lease in seconds, and when it is too late.
    pub(crate) async fn write(
        &self,
        deadline: Deadline,
        claim: Option<(u64, StoreTime)>,
        all: &[Pending<'_>],
    ) -> Result<Written, StoreError> {
        let mut grants = Plan::default();
        for pending in all {
            grants.grants.extend(&pending.plan.grants);
        }
        let granted = self.calls.grant(deadline, &grants).await?;
        let ids: Vec<i64> = granted.iter().map(|lease| lease.id()).collect();
        if let Some((lease_secs, not_after)) = claim {
            let asked = grants.grants.iter().zip(&granted);
            let short = asked.filter(|(asked, _)| **asked == lease_secs);
            let mut learnt = false;
            for (asked, lease) in short {
                learnt |= self.least.learn(*asked, lease.ttl());
            }
            if learnt {
                self.give_back(ids);
                return Ok(Written::Raced);
            }
            if self.now() > not_after {
                self.give_back(ids);
                return Ok(Written::TooLate);
            }
            for pending in all {
                if let Some(nonce) = pending.nonce {
                    self.doubts.add(pending.key, nonce, lease_secs);
                }
            }
        }
        let (mut compares, mut ops, mut first) = (Vec::new(), Vec::new(), 0);
        for pending in all {
            let ids = &ids[first..];
            self.pin(pending, &mut compares);
            self.puts(pending, ids, &mut ops);
            first += pending.plan.grants.len();
        }
        let txn = Txn::new().when(compares).and_then(ops);
        let answer = self.calls.write(deadline, txn).await;
        if claim.is_some() && !answer.as_ref().is_err_and(StoreError::is_ambiguous) {
            for pending in all {
                if let Some(nonce) = pending.nonce {
                    self.doubts.settle(pending.key, nonce);
                }
            }
        }
        let answer = answer?;
        if !answer.succeeded() {
            self.give_back(ids);
            return Ok(Written::Raced);
        }
        let revokes = all.iter().flat_map(|pending| &pending.plan.revokes);
        self.give_back(revokes.copied().collect());
        let revision = u64::try_from(revision(&answer)).unwrap_or(0);
        let by_revision = Token::new(revision).unwrap_or(Token::MAX);
        let least = all.iter().filter_map(|pending| pending.plan.token).max();
        Ok(Written::Yes(by_revision.max(least.unwrap_or(Token::ZERO))))
    }

    /// All that was read of the key must be as it was.
    fn pin(&self, pending: &Pending<'_>, compares: &mut Vec<Compare>) {
        let Pending {
            key, nonce, seen, ..
        } = pending;
        let revision = seen.record.as_ref().map_or(0, |kept| kept.revision);
        let record = self.keys.record(key);
        compares.push(Compare::mod_revision(record, CompareOp::Equal, revision));
        let floor = self.keys.sibling(key, Sibling::Floor);
        let revision = seen.floor.map_or(0, |(_, revision)| revision);
        compares.push(Compare::mod_revision(floor, CompareOp::Equal, revision));
        let exists = [
            (Sibling::Live, seen.live),
            (Sibling::Cool, seen.cool.is_some()),
            (Sibling::Wait, seen.wait.is_some()),
        ];
        for (sibling, is_there) in exists {
            compares.push(is(self.keys.sibling(key, sibling), is_there));
        }
        if let Some(nonce) = nonce {
            compares.push(is(self.keys.spent(key, nonce), seen.spent));
        }
    }

    fn puts(&self, pending: &Pending<'_>, ids: &[i64], ops: &mut Vec<TxnOp>) {
        let key = &pending.key;
        let on = |lease| match id(lease, ids) {
            0 => None,
            id => Some(PutOptions::new().with_lease(id)),
        };
        for write in &pending.plan.writes {
            match write {
                Write::Record(record, lease) => {
                    let bytes = encode(record, ids);
                    ops.push(TxnOp::put(self.keys.record(key), bytes, on(*lease)));
                }
                Write::Forget => ops.push(TxnOp::delete(self.keys.record(key), None)),
                Write::Put(sibling, number, lease) => {
                    let path = self.keys.sibling(key, *sibling);
                    ops.push(TxnOp::put(path, number.to_be_bytes(), on(*lease)));
                }
                Write::Delete(sibling) => {
                    ops.push(TxnOp::delete(self.keys.sibling(key, *sibling), None));
                }
                Write::Spend(lease) => {
                    if let Some(nonce) = &pending.nonce {
                        let path = self.keys.spent(key, nonce);
                        ops.push(TxnOp::put(path, Vec::new(), on(*lease)));
                    }
                }
            }
        }
    }

    /// Leases that carry nothing any more would end by themselves; some only after a day.
    fn give_back(&self, leases: Vec<i64>) {
        if !leases.is_empty() {
            let calls = self.calls.clone();
            tokio::spawn(async move { calls.revoke(leases).await });
        }
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

    pub(crate) fn heard(&self, key: Key, nonce: Nonce) {
        self.doubts.settle(key, nonce);
    }
}

/// Whether the key is there.
pub(crate) fn is(path: String, there: bool) -> Compare {
    let op = if there {
        CompareOp::Greater
    } else {
        CompareOp::Equal
    };
    Compare::create_revision(path, op, 0)
}

pub(crate) fn too_busy() -> StoreError {
    StoreError::unavailable("others changed the key each time before we could")
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
                    return Ok(answer);
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
        self.inner.change(key, None, finish).await
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
