//! Owners, a guard whose log is checked, and bounds on waiting.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tower_claim::store::Admission;
use tower_claim::{
    Attempt, Claim, DynClaimStore, FenceStore, Keeper, Key, MemoryFenceStore, Nonce, Terms, Token,
};

use super::Engine;

/// No single call takes longer, whatever happens: the stores' call timeout is 2 s, and a keeper asks a
/// few times.
pub const ANSWER: Duration = Duration::from_secs(10);
/// What a busy machine may add to a time.
pub const TOLERANCE: Duration = Duration::from_millis(500);

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
        let store = within(ANSWER, "connecting", E::connect(address.into())).await;
        let keeper = Keeper::new(Arc::clone(&store));
        Self { store, keeper }
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

/// The terms of most hours: the engine's lease, renewed.
pub fn terms<E: Engine>() -> Terms {
    Terms::builder(E::lease())
        .build()
        .expect("a lease long enough")
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
        if let Some((last, by)) = accepted.last() {
            assert!(
                token > *last || (token == *last && nonce == *by),
                "accepted writes go back: {:?}, {:?}",
                accepted.last(),
                (token, nonce)
            );
        }
        accepted.push((token, nonce));
        true
    }

    /// A write under a claim.
    pub async fn write_as(&self, claim: &Claim) -> bool {
        self.write(claim.token(), claim.nonce()).await
    }

    /// The floor for a claim that heals.
    pub async fn high_water(&self) -> Token {
        let high = self.marks.high_water("data").await;
        high.expect("memory answers")
    }
}
