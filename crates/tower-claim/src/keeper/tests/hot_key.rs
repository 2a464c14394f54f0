//! One key, claimed and given back without a pause, in real time: its spent nonces fold, and that must
//! never close it.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::store::{Finish, Release, Value};
use crate::{MemoryStore, OsEntropy};

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

async fn again_and_again(terms: &Terms, mut end: impl AsyncFnMut(Claim)) {
    let nonces = Arc::new(Counted::default());
    let keeper = Keeper::builder(MemoryStore::new())
        .entropy(nonces.clone())
        .build()
        .unwrap();
    for round in 0..ROUNDS {
        match keeper.claim(key("hot"), None, terms, Token::ZERO).await {
            Ok(Attempt::Granted(claim)) => end(claim).await,
            other => panic!("round {round}: {other:?}"),
        }
    }
    // A busy machine may make a grant come too late to be of use, now and then; of the folds there are 47.
    let more = nonces.0.load(Ordering::Relaxed) - ROUNDS;
    assert!(more < 20, "{more} claims drew another nonce");
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
