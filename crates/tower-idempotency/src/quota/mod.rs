//! How many records, and bytes of them, one tenant may have: a flood of random keys is its own tenant's trouble.
//!
//! Counted in this process, over any store: what this process has made and not yet seen end. Records of other
//! processes, and of this one before it was started, are not known here.

mod account;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tower_claim::store::Value;
use tower_claim::{Clock, Code, Key, Moment, Refusal};

use crate::reply::Reply;
use crate::shared::Shared;
use account::{Account, Exceeded, Sum};

pub(crate) use account::{Limits, RECORD_BYTES};

/// Accounts of their own, at most. Beyond them tenants share accounts: no account is ever dropped while it counts
/// something, and yet their number must not grow with what callers say.
const ACCOUNTS: usize = 100_000;
/// The accounts that are shared beyond that.
const SHARED_ACCOUNTS: u64 = 1024;
/// Empty accounts are looked for when there are so many, then at each doubling, and when there are all that there may
/// be.
const FIRST_SWEEP: usize = 1024;
/// And not more often than this: where all accounts are in use, no claim may pay for a look at each of them.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// What a tenant has in this process just now. Read it with
/// [`IdempotencyLayer::tenant_usage`](crate::IdempotencyLayer::tenant_usage).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TenantUsage {
    /// Records: of runs, of outcomes that are kept, of keys that were given back a moment ago.
    pub records: u64,
    /// The bytes of their responses, and 256 for each record.
    pub bytes: u64,
}

/// Whose account it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tenant(u64);

/// Tells tenants apart by numbers that nobody outside can aim at.
#[derive(Clone, Default)]
pub(crate) struct Tenants(RandomState);

impl Tenants {
    pub(crate) fn number(&self, scope: Option<&str>) -> Tenant {
        Tenant(self.0.hash_one(scope))
    }
}

/// The accounts of all tenants.
pub(crate) struct Quotas {
    limits: Limits,
    /// How long a key that was given back stays in the store.
    linger: Duration,
    clock: Arc<dyn Clock>,
    tenants: Tenants,
    books: Mutex<Books>,
}

struct Books {
    accounts: HashMap<u64, Account>,
    /// Accounts of their own, at most.
    bound: usize,
    next_sweep: usize,
    /// Nothing is looked for before.
    no_sweep_before: Moment,
}

impl Quotas {
    pub(crate) fn new(
        limits: Limits,
        linger: Duration,
        clock: Arc<dyn Clock>,
        tenants: Tenants,
    ) -> Self {
        Self {
            limits,
            linger,
            clock,
            tenants,
            books: Mutex::new(Books::of(ACCOUNTS)),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Counts a claim that is to be sent.
    fn begin(self: &Arc<Self>, tenant: Tenant, key: Key) -> Result<Counted, (Exceeded, Duration)> {
        let now = self.clock.now();
        let mut books = self.books();
        let number = books.open(tenant, &*self.clock);
        let account = books.accounts.entry(number).or_default();
        account.begin(key, &self.limits, now).map_err(|exceeded| {
            let next = account.next_end();
            let after = next.map_or(self.linger, |at| at.saturating_since(now));
            (exceeded, after)
        })?;
        Ok(Counted {
            quotas: Arc::clone(self),
            account: number,
            key: Some(key),
        })
    }

    /// A run that has its record already: it is counted, never refused.
    fn along(self: &Arc<Self>, tenant: Tenant) -> Counted {
        Counted {
            quotas: Arc::clone(self),
            account: self.books().open(tenant, &*self.clock),
            key: None,
        }
    }

    pub(crate) fn usage(&self, scope: Option<&str>) -> TenantUsage {
        let Tenant(number) = self.tenants.number(scope);
        let mut books = self.books();
        let number = books.number(number);
        let account = books.accounts.get_mut(&number);
        let Sum { records, bytes } =
            account.map_or_else(Sum::default, |account| account.has(self.clock.now()));
        TenantUsage { records, bytes }
    }

    fn with<T>(&self, account: u64, act: impl FnOnce(&mut Account) -> T) -> T {
        act(self.books().accounts.entry(account).or_default())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn of(bound: usize) -> Self {
        Self {
            accounts: HashMap::new(),
            bound,
            next_sweep: FIRST_SWEEP.min(bound),
            no_sweep_before: Moment::since_start(Duration::ZERO),
        }
    }

    /// The tenant's account: its own, or one that it shares.
    fn number(&self, tenant: u64) -> u64 {
        let own = tenant | SHARED_ACCOUNTS;
        if self.accounts.len() < self.bound || self.accounts.contains_key(&own) {
            own
        } else {
            tenant % SHARED_ACCOUNTS
        }
    }

    fn open(&mut self, Tenant(tenant): Tenant, clock: &dyn Clock) -> u64 {
        if self.accounts.len() >= self.next_sweep {
            let now = clock.now();
            if now >= self.no_sweep_before {
                self.accounts.retain(|_, account| !account.is_empty(now));
                let doubled = (self.accounts.len() * 2).max(FIRST_SWEEP);
                self.next_sweep = doubled.min(self.bound);
                self.no_sweep_before = now + SWEEP_PAUSE;
            }
        }
        self.number(tenant)
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quotas")
            .field("limits", &self.limits)
            .field("accounts", &self.books().accounts.len())
            .finish_non_exhaustive()
    }
}

/// A claim under way, counted. Dropped without a grant, it counts no more.
pub(crate) struct Counted {
    quotas: Arc<Quotas>,
    account: u64,
    key: Option<Key>,
}

impl Counted {
    /// It was granted: its record counts until it is told how that ended.
    pub(crate) fn granted(mut self) -> Seat {
        let key = self.key.take();
        self.quotas.with(self.account, |account| {
            if let Some(key) = key {
                account.claimed(key);
            }
            account.run();
        });
        Seat {
            quotas: Arc::clone(&self.quotas),
            account: self.account,
            bytes: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.quotas
                .with(self.account, |account| account.claimed(key));
        }
    }
}

/// A run's record, counted. Dropped without a word, it counts as one that was given back.
pub(crate) struct Seat {
    quotas: Arc<Quotas>,
    account: u64,
    /// Of the response.
    bytes: AtomicU64,
    is_over: AtomicBool,
}

impl Seat {
    /// The outcome; and without its response, where that is more than the tenant may have (`false`): that the work
    /// is done is kept in any case.
    pub(crate) fn fit(&self, value: Value) -> (Value, bool) {
        let Value::Kept(response) = &value else {
            return (value, true);
        };
        let (bytes, now) = (response.len() as u64, self.quotas.clock.now());
        let limits = &self.quotas.limits;
        let fits = self
            .quotas
            .with(self.account, |account| account.fits(bytes, limits, now));
        if !fits {
            return (Value::Tombstone, false);
        }
        self.bytes.store(bytes, Ordering::Relaxed);
        (value, true)
    }

    /// The record stays so long.
    pub(crate) fn stays(&self, keep: Duration) {
        self.end(Some(keep));
    }

    /// The key was given back: what the store remembers of it stays for a moment.
    pub(crate) fn given_back(&self) {
        self.end(Some(self.quotas.linger));
    }

    /// Another run has taken over, and its process counts the record.
    pub(crate) fn superseded(&self) {
        self.end(None);
    }

    fn end(&self, keep: Option<Duration>) {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        let (bytes, now) = (self.bytes.load(Ordering::Relaxed), self.quotas.clock.now());
        self.quotas.with(self.account, |account| match keep {
            Some(keep) => account.stays(bytes, keep, now),
            None => account.gone(bytes),
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.given_back();
    }
}

impl Shared {
    /// Counts the claim of a key that is to be sent; refuses it where the tenant may have no more. Its repeats are
    /// answered all the same: then it costs one look at the store, which writes nothing.
    pub(crate) async fn count(
        &self,
        key: Key,
        tenant: Option<Tenant>,
    ) -> Result<Option<Counted>, Reply> {
        let (Some(quotas), Some(tenant)) = (&self.quotas, tenant) else {
            return Ok(None);
        };
        let (exceeded, after) = match quotas.begin(tenant, key) {
            Ok(place) => return Ok(Some(place)),
            Err(exceeded) => exceeded,
        };
        if self.is_taken(key).await? {
            return Ok(Some(quotas.along(tenant)));
        }
        self.counters.over_quota.add();
        let reason = match exceeded {
            Exceeded::Records => "records",
            Exceeded::Bytes => "bytes",
        };
        let refusal = Refusal::new(Code::QuotaExceeded).with_reason(reason);
        Err(refusal.with_retry_after(after).into())
    }
}

#[cfg(test)]
mod tests {
    use tower_claim::testing::ManualClock;

    use super::*;

    /// However many tenants there were at once: when they are gone, the next have accounts of their own again.
    #[test]
    fn accounts_are_swept_at_their_bound_too() {
        for bound in [10, FIRST_SWEEP, 2 * FIRST_SWEEP - 1] {
            let clock = ManualClock::new();
            let mut books = Books::of(bound);
            let keep = Duration::from_secs(3600);
            for n in 0..2 * bound as u64 {
                let number = books.open(Tenant(n << 32), &clock);
                let account = books.accounts.entry(number).or_default();
                account.run();
                account.stays(0, keep, clock.now());
            }
            let shared = books.open(Tenant(u64::MAX), &clock);
            assert!(shared < SHARED_ACCOUNTS, "the bound of {bound} is reached");
            clock.advance(keep * 2);
            let own = books.open(Tenant(u64::MAX), &clock);
            assert!(own >= SHARED_ACCOUNTS, "{bound}");
            assert_eq!(books.accounts.len(), 0, "{bound}");
        }
    }
}
