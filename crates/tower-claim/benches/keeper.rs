//! What the keeper costs over the store's own claim and end: one key after another, in-memory store.

#![allow(clippy::expect_used, reason = "a bench may panic")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tower_claim::store::{ClaimRequest, ReleaseRequest};
use tower_claim::{
    Attempt, ClaimStore, Keeper, Key, MemoryStore, Namespace, Nonce, OsEntropy, Renewal, Settings,
    Terms, Token, Use,
};

fn key(n: u64) -> Key {
    Key::builder(Use::Lease, &Namespace::default())
        .part(n.to_be_bytes())
        .build()
}

fn claim_and_release(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let keys: Vec<_> = (0..1024).map(key).collect();
    let lease = Duration::from_secs(10);
    let mut group = c.benchmark_group("claim + release");

    let store = MemoryStore::new();
    let settings = Settings::new(lease);
    let mut turn = 0;
    group.bench_function("store alone", |b| {
        b.iter(|| {
            turn += 1;
            let (key, nonce) = (keys[turn % keys.len()], Nonce::draw(&OsEntropy));
            let not_after = store.now().saturating_add(Duration::from_secs(2));
            let request = ClaimRequest {
                key,
                nonce,
                fingerprint: None,
                settings: &settings,
                floor: Token::ZERO,
                not_after,
            };
            let claimed = runtime.block_on(store.claim(request)).expect("claimed");
            let release = ReleaseRequest {
                key,
                nonce,
                token: None,
                not_after,
            };
            let released = runtime.block_on(store.release(release)).expect("released");
            black_box((claimed, released))
        });
    });

    for (name, renewal) in [("keeper", Renewal::Always), ("keeper, off", Renewal::Off)] {
        let keeper = Keeper::new(MemoryStore::new());
        let terms = Terms::builder(lease)
            .renewal(renewal)
            .build()
            .expect("terms");
        group.bench_function(name, |b| {
            b.iter(|| {
                turn += 1;
                runtime.block_on(async {
                    let claim = keeper.claim(keys[turn % keys.len()], None, &terms, Token::ZERO);
                    let Ok(Attempt::Granted(claim)) = claim.await else {
                        return None;
                    };
                    claim.release().await.ok()
                })
            });
        });
    }
    group.finish();
}

criterion_group!(benches, claim_and_release);
criterion_main!(benches);
