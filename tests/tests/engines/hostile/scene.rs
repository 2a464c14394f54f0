//! Owners, a guard whose log is checked, and bounds on waiting.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tower_claim::store::{Admission, Event, Finish, Promise, Value};
use tower_claim::{
    Attempt, Claim, DynClaimStore, FenceStore, Keeper, Key, MemoryFenceStore, Nonce, Terms, Token,
};

use super::Engine;
use crate::suite::key;

/// No single call takes longer, whatever happens: the stores' call timeout is 2 s, and a keeper asks a
/// few times.
pub const ANSWER: Duration = Duration::from_secs(20);
/// What a busy machine may add to a time. Less than any lease: one that is counted twice is seen.
pub const TOLERANCE: Duration = Duration::from_secs(3);

/// Waits for `work`.
///
/// # Panics
///
/// Where it is not done within `limit`.
pub async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not done within {limit:?}"),
    }
}

/// A client: a store of its own and a keeper.
#[derive(Debug)]
pub struct Party {
    pub store: Arc<dyn DynClaimStore>,
    pub keeper: Keeper,
}

impl Party {
    /// Connects to `HOST:PORT`: the server, or a relay before it.
    pub async fn at<E: Engine>(address: impl Into<String>) -> Self {
        Self::with(within(ANSWER, "connecting", E::connect(address.into())).await)
    }

    /// Over a store.
    pub fn with(store: Arc<dyn DynClaimStore>) -> Self {
        let keeper = Keeper::new(Arc::clone(&store));
        Self { store, keeper }
    }

    /// A grant above the floor.
    ///
    /// # Panics
    ///
    /// Where the key is not free.
    pub async fn take_above(&self, key: Key, terms: &Terms, floor: Token) -> Claim {
        let asked = self.keeper.claim(key, None, terms, floor);
        match within(ANSWER, "a claim", asked).await {
            Ok(Attempt::Granted(claim)) => claim,
            other => panic!("a free key: {other:?}"),
        }
    }

    /// A result that is kept for long.
    pub async fn finish(&self, key: Key, terms: &Terms, value: Value) {
        let done = self.take(key, terms, ANSWER).await;
        let told = done.finish(value, Duration::from_secs(600)).await;
        assert_eq!(told.expect("it is answered"), Finish::Finished);
    }

    /// Whether the result is gone.
    ///
    /// # Panics
    ///
    /// Where there is another, or no answer.
    pub async fn has_forgotten(&self, key: Key, terms: &Terms, value: &Value) -> bool {
        match self.try_take(key, terms).await {
            Ok(Attempt::Done(record)) => {
                assert_eq!(record.value, *value);
                false
            }
            Ok(Attempt::Granted(_)) => true,
            other => panic!("neither kept nor forgotten: {other:?}"),
        }
    }

    /// One attempt.
    pub async fn try_take(&self, key: Key, terms: &Terms) -> Result<Attempt, String> {
        let attempt = self.keeper.claim(key, None, terms, Token::ZERO);
        let answer = within(ANSWER, "a claim", attempt).await;
        answer.map_err(|error| format!("{error:?}"))
    }

    /// Asks until the key is granted.
    ///
    /// # Panics
    ///
    /// Where it is not within `limit`.
    pub async fn take(&self, key: Key, terms: &Terms, limit: Duration) -> Claim {
        let until = Instant::now() + limit;
        loop {
            let seen = match self.try_take(key, terms).await {
                Ok(Attempt::Granted(claim)) => return claim,
                other => other,
            };
            assert!(
                Instant::now() < until,
                "not granted within {limit:?}: {seen:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The same store for two.
pub async fn two<E: Engine>(engine: &E) -> (Party, Party) {
    let owner = Party::at::<E>(engine.address()).await;
    let rival = Party::at::<E>(engine.address()).await;
    (owner, rival)
}

/// Waits until the store has found the server again.
pub async fn settled(store: &Arc<dyn DynClaimStore>) {
    let found = async {
        while store.dyn_peek(key()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(Duration::from_secs(30), "finding the server again", found).await;
}

/// Waits until a beat of this claim is answered.
pub async fn beaten(claim: &Claim) {
    let beat = async {
        let mut left = claim.remaining();
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = claim.remaining();
            if now > left {
                return;
            }
            left = now;
        }
    };
    within(claim.remaining() + TOLERANCE, "a beat", beat).await;
    assert_eq!(claim.check(), Ok(()));
}

/// The owner was cut off at this moment: when a lease has passed it knows, by its own clock, whoever wakes it
/// late.
///
/// # Panics
///
/// Where it believes for longer.
pub async fn knows(claim: &Claim, cut: Instant, lease: Duration) {
    tokio::time::sleep_until((cut + lease).into()).await;
    assert!(claim.check().is_err(), "it believes past its lease");
}

/// Holds what an hour has seen against what the store names, both ways: a promise that broke and is not
/// named is broken, one that is named and did not break is a warning for nothing.
///
/// # Panics
///
/// Where they differ.
pub fn named(store: &Arc<dyn DynClaimStore>, event: Event, seen: &[(Promise, bool)]) {
    let weakened = store.dyn_capabilities().weakened;
    for (promise, broke) in seen {
        assert_eq!(
            *broke,
            weakened.may(event, *promise),
            "`{promise}` over {event}: left is whether it broke, right whether `capabilities()` names it"
        );
    }
}

/// The floor that a guard of more than one store may ask for: far above what the clock gives. An engine that
/// forgets the record forgets it.
pub fn high_floor() -> Token {
    Token::new(1 << 52).expect("below the highest")
}

/// Of the terms that outlast a look: beats are so far apart that the owner hears of nothing meanwhile.
pub fn unheard() -> Terms {
    Terms::builder(Duration::from_secs(30))
        .build()
        .expect("a lease long enough")
}

/// The terms of most hours: the engine's lease, renewed.
pub fn terms<E: Engine>() -> Terms {
    Terms::builder(E::lease())
        .build()
        .expect("a lease long enough")
}

/// A second look at what a guard lets through.
///
/// # Panics
///
/// Where an accepted write goes back behind another, or shares its token.
pub fn note(accepted: &mut Vec<(Token, Nonce)>, token: Token, nonce: Nonce) {
    if let Some((last, by)) = accepted.last() {
        assert!(
            token > *last || (token == *last && nonce == *by),
            "accepted writes go back: {:?}, {:?}",
            accepted.last(),
            (token, nonce)
        );
    }
    accepted.push((token, nonce));
}

/// A guard that no hour touches, and a second look at what it let through.
#[derive(Debug)]
pub struct Guard {
    marks: MemoryFenceStore,
    accepted: tokio::sync::Mutex<Vec<(Token, Nonce)>>,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            marks: MemoryFenceStore::new(),
            accepted: tokio::sync::Mutex::default(),
        }
    }
}

impl Guard {
    /// A write; whether it was accepted.
    ///
    /// # Panics
    ///
    /// Where an accepted write goes back behind another, or shares its token.
    pub async fn write(&self, token: Token, nonce: Nonce) -> bool {
        let mut accepted = self.accepted.lock().await;
        let answer = self.marks.admit("data", token, nonce).await;
        if answer.expect("memory answers") != Admission::Admitted {
            return false;
        }
        note(&mut accepted, token, nonce);
        true
    }

    /// A write under a claim.
    pub async fn write_as(&self, claim: &Claim) -> bool {
        self.write(claim.token(), claim.nonce()).await
    }

    /// The next owner writes, healing first where tokens went back; the one before is refused. The next
    /// owner's claim, and whether tokens went back.
    ///
    /// # Panics
    ///
    /// Where it is otherwise.
    pub async fn pass_to(&self, next: Claim, before: &Claim, by: &Keeper) -> (Claim, bool) {
        let fell = next.token() <= before.token();
        let next = if fell {
            assert!(!self.write_as(&next).await, "tokens went back");
            let healing = by.heal(next, self.high_water().await);
            match within(ANSWER, "healing", healing).await {
                Ok(Attempt::Granted(healed)) => healed,
                other => panic!("a claim that heals: {other:?}"),
            }
        } else {
            next
        };
        assert!(next.token() > before.token());
        assert!(self.write_as(&next).await);
        assert!(!self.write_as(before).await, "the old owner writes");
        (next, fell)
    }

    /// The floor for a claim that heals.
    pub async fn high_water(&self) -> Token {
        let high = self.marks.high_water("data").await;
        high.expect("memory answers")
    }
}
