//! Many owners on few keys, on several threads, over a store that loses replies, delays and delivers
//! twice: at most one believes, tokens rise, everything ends.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use crate::store::{ClaimStore, Value};
use crate::testing::{Fault, FaultStore, Faults, Operation};
use crate::{MemoryStore, StoreError};

const OWNERS: u64 = 8;
const ROUNDS: usize = 400;

/// SplitMix64: repeatable, and no two owners alike.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (z ^ (z >> 27)) % sides
    }
}

/// The last owner of a key, as the next one judges it.
struct Last {
    token: Token,
    ended: Arc<AtomicBool>,
    /// By then it does not believe any more, whatever it does.
    until: Instant,
}

struct Arena {
    memory: MemoryStore,
    store: FaultStore<MemoryStore>,
    keeper: Keeper,
    keys: [Key; 4],
    last: [Mutex<Option<Last>>; 4],
    grants: AtomicUsize,
    watched: AtomicUsize,
}

impl Arena {
    fn new() -> Self {
        let memory = MemoryStore::builder().shards(2).build().unwrap();
        let store = FaultStore::new(memory.clone());
        Self {
            keeper: Keeper::builder_many(store.clone()).build().unwrap(),
            memory,
            store,
            keys: ["a", "b", "c", "d"].map(key),
            last: std::array::from_fn(|_| Mutex::new(None)),
            grants: AtomicUsize::new(0),
            watched: AtomicUsize::new(0),
        }
    }

    async fn live(&self, dice: &mut Dice) {
        // Some never renew, and sleep past their lease.
        let sleepy = dice.roll(8) == 0;
        let terms = if sleepy {
            Terms::builder(MS * 20).renewal(Renewal::Off).build()
        } else {
            Terms::builder(MS * 300).build()
        };
        let terms = terms.unwrap();
        // In any order: the keeper sorts.
        let begin = dice.roll(4) as usize;
        let mut keys: Vec<Key> = (0..=dice.roll(2)).map(|_| self.keys[begin]).collect();
        if let Some(other) = keys.get_mut(1) {
            *other = self.keys[dice.roll(4) as usize];
        }
        let claim = async {
            match keys[..] {
                [key] => self.keeper.claim(key, None, &terms, Token::ZERO).await,
                _ => match self.keeper.claim_many(&keys, &terms, Token::ZERO).await? {
                    AttemptMany::Granted(claim) => Ok(Attempt::Granted(claim)),
                    AttemptMany::Refused { by, .. } => Ok(by),
                },
            }
        };
        let attempt: Result<_, StoreError> = match dice.roll(4) {
            0 => match until_await(1, claim).await {
                Some(attempt) => attempt,
                None => return,
            },
            _ => claim.await,
        };
        match attempt {
            Ok(Attempt::Granted(claim)) => self.work(claim, sleepy, dice).await,
            Ok(Attempt::Busy(busy)) => self.wait(keys[0], busy.token, dice).await,
            Ok(_) | Err(_) => tokio::task::yield_now().await,
        }
    }

    async fn work(&self, claim: Claim, sleepy: bool, dice: &mut Dice) {
        self.grants.fetch_add(1, Ordering::Relaxed);
        let ended = Arc::new(AtomicBool::new(false));
        for key in claim.keys() {
            let nth = self.keys.iter().position(|k| k == key).unwrap();
            let mut place = self.last[nth].lock().unwrap();
            let until = Instant::now() + claim.remaining();
            if claim.check().is_err() {
                // The machine was busy: this one does not believe any more, and another may be in its place.
                continue;
            }
            let last = Last {
                token: claim.token(),
                ended: Arc::clone(&ended),
                until,
            };
            if let Some(before) = place.replace(last) {
                assert!(before.token < claim.token(), "tokens go back");
                let over = before.ended.load(Ordering::SeqCst) || Instant::now() >= before.until;
                assert!(over, "two believe that they hold {key:?}");
            }
        }
        if sleepy {
            tokio::time::sleep(MS * 25).await;
            assert!(claim.check().is_err());
        } else {
            tokio::task::yield_now().await;
        }
        ended.store(true, Ordering::SeqCst);
        match dice.roll(3) {
            0 => drop(claim),
            1 if claim.keys().len() == 1 => {
                let _ = claim.finish(Value::Kept("x".into()), MS).await;
            }
            _ => {
                let _ = claim.release().await;
            }
        }
    }

    async fn wait(&self, key: Key, token: Token, dice: &mut Dice) {
        let watch = self.store.watch(key, token);
        if dice.roll(2) == 0 {
            let _ = tokio::time::timeout(MS, watch).await;
        } else {
            let watched = tokio::time::timeout(MS * 60_000, watch).await;
            assert!(watched.is_ok(), "a lost wake-up");
            self.watched.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn mischief(faults: Faults) {
    let mut dice = Dice(99);
    loop {
        let operation = match dice.roll(5) {
            0 => Operation::Claim,
            1 => Operation::ClaimMany,
            2 => Operation::Finish,
            3 => Operation::Release,
            _ => Operation::ReleaseMany,
        };
        let fault = match dice.roll(4) {
            0 => Fault::LoseReply(2),
            1 => Fault::Repeat(3),
            2 => Fault::Delay(MS),
            _ => Fault::Ok,
        };
        faults.set_for(operation, fault);
        tokio::time::sleep(MS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn of_many_owners_at_most_one_believes_and_everything_ends() {
    let arena = Arc::new(Arena::new());
    let mischief = tokio::spawn(mischief(arena.store.faults()));
    let owners: Vec<_> = (0..OWNERS)
        .map(|owner| {
            let arena = Arc::clone(&arena);
            tokio::spawn(async move {
                let mut dice = Dice(owner << 32);
                for _ in 0..ROUNDS {
                    arena.live(&mut dice).await;
                }
            })
        })
        .collect();
    for owner in owners {
        let ended = tokio::time::timeout(MS * 300_000, owner).await;
        ended.expect("somebody waits for ever").unwrap();
    }
    mischief.abort();
    arena.store.faults().set(Fault::Ok);
    assert!(arena.keeper.drain(MS * 60_000).await);
    let grants = arena.grants.load(Ordering::Relaxed);
    assert!(grants > ROUNDS / 2, "{grants} grants say little");
    assert!(arena.watched.load(Ordering::Relaxed) > 10);
    assert_eq!(arena.memory.stats().watched, 0);

    // Whatever was dropped, lost or lapsed: all keys are claimable again, together.
    let until = Instant::now() + MS * 60_000;
    loop {
        let terms = terms();
        let all = arena.keeper.claim_many(&arena.keys, &terms, Token::ZERO);
        match all.await {
            Ok(AttemptMany::Granted(_)) => break,
            other => assert!(Instant::now() < until, "{other:?}"),
        }
        tokio::time::sleep(MS).await;
    }
}
