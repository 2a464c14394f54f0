//! `MemoryStore`: the cost of a claim and what follows it, uncontended.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use futures_util::FutureExt;
use tower_claim::store::{ClaimRequest, Claimed, FinishRequest, Owner, ReleaseRequest, Value};
use tower_claim::{ClaimStore, ConfigError, Key, MemoryStore, Nonce, Settings, StoreError, Token};

fn now<T>(call: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
    call.now_or_never().and_then(Result::ok)
}

/// The n-th key of a run, spread as a hash would be.
fn key(n: u64) -> Key {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    Key::from_bytes(bytes)
}

fn nonce(n: u64) -> Nonce {
    Nonce::from_bytes(u128::from(n).to_le_bytes())
}

/// How long a copy of a claim may be under way: so long a record stays at least.
const UNDER_WAY: Duration = Duration::from_millis(20);

struct Run {
    store: MemoryStore,
    settings: Settings,
    n: u64,
}

impl Run {
    fn new(records: usize) -> Result<Self, ConfigError> {
        let builder = MemoryStore::builder().max_records(records);
        Ok(Self {
            store: builder.memory_limit(8 << 30).build()?,
            settings: Settings::new(Duration::from_secs(10)),
            n: 0,
        })
    }

    fn claim(&self, key: Key, nonce: Nonce) -> Option<Claimed> {
        now(self.store.claim(ClaimRequest {
            key,
            nonce,
            fingerprint: None,
            settings: &self.settings,
            floor: Token::ZERO,
            not_after: self.store.now().saturating_add(UNDER_WAY),
        }))
    }

    fn granted(&mut self) -> Owner {
        self.n += 1;
        let (key, nonce) = (key(self.n), nonce(self.n));
        match self.claim(key, nonce) {
            Some(Claimed::Granted(grant)) => Owner {
                key,
                nonce,
                token: grant.token,
            },
            other => unreachable!("{other:?}"),
        }
    }

    fn finish(&mut self, owner: Owner, body: Bytes, keep: Duration) {
        let value = Value::Kept(body);
        black_box(now(self.store.finish(FinishRequest { owner, value, keep })));
    }
}

fn run(c: &mut Criterion) -> Result<(), ConfigError> {
    let mut group = c.benchmark_group("memory_store");
    let body = Bytes::from(vec![7; 256]);

    // The clearing of what has ended is part of the price. Some 20,000 records live at a time.
    let mut run = Run::new(1_000_000)?;
    group.bench_function("claim + finish, 256 bytes", |b| {
        b.iter(|| {
            let owner = run.granted();
            run.finish(owner, body.clone(), UNDER_WAY);
        });
    });

    let mut run = Run::new(1_000_000)?;
    group.bench_function("claim + release", |b| {
        b.iter(|| {
            let owner = run.granted();
            black_box(now(run.store.release(ReleaseRequest {
                key: owner.key,
                nonce: owner.nonce,
                token: Some(owner.token),
                not_after: run.store.now(),
            })));
        });
    });

    // Far beyond the processor's caches.
    let mut run = Run::new(50_000_000)?;
    group.bench_function("claim + finish, 256 bytes, a growing million", |b| {
        b.iter(|| {
            let owner = run.granted();
            run.finish(owner, body.clone(), Duration::from_secs(1));
        });
    });

    let mut run = Run::new(2_000_000)?;
    for _ in 0..1_000_000 {
        let owner = run.granted();
        run.finish(owner, body.clone(), Duration::from_secs(86_400));
    }
    let mut n = 0;
    group.bench_function("replay out of 1,000,000", |b| {
        b.iter_batched(
            || {
                n = n % 1_000_000 + 1;
                (key(n), nonce(u64::MAX - n))
            },
            |(key, nonce)| black_box(run.claim(key, nonce)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
    Ok(())
}

fn memory_store(c: &mut Criterion) {
    if let Err(error) = run(c) {
        unreachable!("{error}");
    }
}

criterion_group!(benches, memory_store);
criterion_main!(benches);
