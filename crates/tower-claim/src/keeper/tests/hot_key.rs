//! One key, claimed and given back without a pause: its spent nonces fold, and that must never close it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures_util::future::BoxFuture;

use super::*;
use crate::store::{Finish, Release, Value};
use crate::{Clock, MemoryStore, Moment, OsEntropy};

const ROUNDS: usize = 100_000;

/// Counts the nonces drawn: a claim that is refused for its `not_after` draws another one.
#[derive(Debug, Default)]
struct Counted(AtomicUsize);

impl Entropy for Counted {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.fetch_add(1, Ordering::Relaxed);
        OsEntropy.fill(bytes);
    }
}

/// The clock of a machine that is fast, and never busy with anything else: half a microsecond passes from look
/// to look, and who sleeps has slept.
#[derive(Debug, Default, Clone)]
struct Steady(Arc<AtomicU64>);

impl Steady {
    const STEP: u64 = 500;

    fn passed(&self) -> Duration {
        Duration::from_nanos(self.0.fetch_add(Self::STEP, Ordering::Relaxed))
    }
}

impl Clock for Steady {
    fn now(&self) -> Moment {
        Moment::default() + self.passed()
    }

    fn unix_time(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + self.passed()
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()> {
        // The keeper's thread sleeps until a beat: no hold lives that long.
        if std::thread::current().name() == Some("tower-claim-keeper") {
            return Box::pin(std::future::pending());
        }
        let (nanos, at) = (Arc::clone(&self.0), at.saturating_since(Moment::default()));
        Box::pin(async move {
            nanos.fetch_max(at.as_nanos() as u64, Ordering::Relaxed);
        })
    }
}

async fn again_and_again(terms: &Terms, mut end: impl AsyncFnMut(Claim)) {
    let nonces = Arc::new(Counted::default());
    let clock = Arc::new(Steady::default());
    let store = MemoryStore::builder().clock(clock.clone());
    let keeper = Keeper::builder(store.build().unwrap())
        .entropy(nonces.clone())
        .clock(clock)
        .build()
        .unwrap();
    for round in 0..ROUNDS {
        match keeper.claim(key("hot"), None, terms, Token::ZERO).await {
            Ok(Attempt::Granted(claim)) => end(claim).await,
            other => panic!("round {round}: {other:?}"),
        }
    }
    let more = nonces.0.load(Ordering::Relaxed) - ROUNDS;
    assert!(more < 5, "{more} claims drew another nonce");
}

async fn release(claim: Claim) {
    let answer = claim.release().await.unwrap();
    assert_eq!(answer, HandBack::Answered(Release::Released));
}

#[tokio::test]
async fn a_key_released_at_full_speed_is_never_closed() {
    // Short enough that three refused nonces are drawn within 8 ms.
    let hasty = Terms::builder(MS * 100).build().unwrap();
    again_and_again(&hasty, release).await;
    again_and_again(&Terms::default(), release).await;
}

#[tokio::test]
async fn a_key_finished_at_full_speed_is_never_closed() {
    again_and_again(&Terms::default(), async |claim| {
        let answer = claim.finish(Value::Tombstone, Duration::ZERO).await;
        assert_eq!(answer.unwrap(), Finish::Finished);
    })
    .await;
}
