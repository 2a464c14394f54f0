//! Trouble on the way to the store, and a small client that deals with it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::store::{
    Beat, Broken, Capabilities, ClaimManyRequest, ClaimRequest, Claimed, ClaimedMany, Finish,
    FinishRequest, Grant, Marked, Owner, Purged, RecordView, Release, ReleaseRequest, Renewed,
    Resolution, Resolved, ScanPage, StoreTime, Watched,
};
use crate::testing::{Fault, FaultStore, Faults};
use crate::{ClaimAdmin, ClaimMany, ClaimStore, DynClaimStore, Key, Nonce, StoreError, Token};

/// Trouble on the way to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// Every call is refused once, and sent again.
    Refuse,
    /// Every call waits a fiftieth of a unit before the engine is asked.
    Delay,
    /// The first reply of every call is lost after it was applied, and the call is repeated with the same
    /// nonce. Laws about what a first answer tells are skipped.
    LoseReply,
    /// Every call is delivered twice.
    Repeat,
}

impl Trouble {
    /// Each of them.
    pub const ALL: [Trouble; 4] = [
        Trouble::Refuse,
        Trouble::Delay,
        Trouble::LoseReply,
        Trouble::Repeat,
    ];
}

/// A store behind trouble, and the client that repeats.
#[derive(Debug)]
pub(super) struct Troubled<S> {
    store: FaultStore<S>,
    faults: Faults,
    trouble: Trouble,
    delay: Duration,
    /// What the client knows that it holds: after a lost reply `Mine` means "granted" the first time, and
    /// `Already` means "released".
    holds: Mutex<HashMap<(Key, Nonce), Token>>,
}

/// Whether the answer is of the first sending.
type Lost = bool;

impl<S> Troubled<S> {
    pub(super) fn new(store: S, trouble: Trouble, unit: Duration) -> Self {
        let store = FaultStore::new(store);
        Self {
            faults: store.faults(),
            store,
            trouble,
            delay: unit / 50,
            holds: Mutex::default(),
        }
    }

    async fn send<T, F>(&self, call: impl Fn() -> F) -> Result<(T, Lost), StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.faults.set(match self.trouble {
            Trouble::Refuse => Fault::Down,
            Trouble::Delay => Fault::Delay(self.delay),
            Trouble::LoseReply => Fault::LoseReply(1),
            Trouble::Repeat => Fault::Repeat(1),
        });
        let lost = match call().await {
            Err(StoreError::Ambiguous(_)) => true,
            Err(StoreError::Unavailable(_)) => false,
            answer => return Ok((answer?, false)),
        };
        self.faults.set(Fault::Ok);
        Ok((call().await?, lost))
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<(Key, Nonce), Token>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `Mine` on the first answer that arrives is the grant whose reply was lost.
    fn understand(&self, keys: &[Key], nonce: Nonce, answer: Claimed, lost: Lost) -> Claimed {
        let mut holds = self.holds();
        let known = keys.iter().all(|key| holds.contains_key(&(*key, nonce)));
        let answer = match answer {
            Claimed::Mine {
                token,
                rest,
                attempt,
            } if lost && !known => Claimed::Granted(Grant {
                token,
                lease: rest,
                attempt,
                took_over: None,
            }),
            answer => answer,
        };
        if let Claimed::Granted(grant) = &answer {
            holds.extend(keys.iter().map(|key| ((*key, nonce), grant.token)));
        }
        answer
    }

    fn understand_release(&self, request: &ReleaseRequest, answer: Release, lost: Lost) -> Release {
        let mut holds = self.holds();
        let hold = (request.key, request.nonce);
        let token = holds.get(&hold).copied();
        let held = token.is_some() && request.token.is_none_or(|t| Some(t) == token);
        if held {
            holds.remove(&hold);
        }
        match answer {
            Release::Already if lost && held => Release::Released,
            answer => answer,
        }
    }
}

impl<S: ClaimStore> ClaimStore for Troubled<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn now(&self) -> StoreTime {
        self.store.now()
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        let (answer, lost) = self.send(|| self.store.claim(request)).await?;
        Ok(self.understand(&[request.key], request.nonce, answer, lost))
    }

    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        Ok(self.send(|| self.store.renew(beats)).await?.0)
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        Ok(self.send(|| self.store.mark(owner)).await?.0)
    }

    async fn finish(&self, request: FinishRequest) -> Result<Finish, StoreError> {
        let (answer, _) = self.send(|| self.store.finish(request.clone())).await?;
        Ok(answer)
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        let (answer, lost) = self.send(|| self.store.release(request)).await?;
        Ok(self.understand_release(&request, answer, lost))
    }

    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        Ok(self.send(|| self.store.watch(key, token)).await?.0)
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        Ok(self.send(|| self.store.peek(key)).await?.0)
    }

    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        self.store.inner().keeper_store().await
    }
}

impl<S: ClaimMany> ClaimMany for Troubled<S> {
    async fn claim_many(&self, request: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        let (answer, lost) = self.send(|| self.store.claim_many(request)).await?;
        let (key, answer) = match answer {
            ClaimedMany::Granted(grant) => (None, Claimed::Granted(grant)),
            ClaimedMany::Refused { key, by } => (Some(key), by),
        };
        let answer = self.understand(request.keys, request.nonce, answer, lost);
        Ok(match (answer, key) {
            (Claimed::Granted(grant), _) => ClaimedMany::Granted(grant),
            (by, key) => ClaimedMany::Refused {
                key: key.unwrap_or(request.keys[0]),
                by,
            },
        })
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        let (answers, lost) = self.send(|| self.store.release_many(requests)).await?;
        let both = requests.iter().zip(answers);
        Ok(both
            .map(|(request, answer)| self.understand_release(request, answer, lost))
            .collect())
    }
}

impl<S: ClaimAdmin> ClaimAdmin for Troubled<S> {
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        Ok(self.send(|| self.store.scan(from, limit)).await?.0)
    }

    /// A conflict with a raised token, after a lost reply, is one's own work.
    async fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        let call = || self.store.resolve(key, expected, resolution.clone());
        Ok(match self.send(call).await? {
            (Resolved::Conflict { token }, true) if token > expected => {
                Resolved::Resolved { token }
            }
            (answer, _) => answer,
        })
    }

    async fn ask_revoke(&self, key: Key, expected: Token) -> Result<bool, StoreError> {
        Ok(self.send(|| self.store.ask_revoke(key, expected)).await?.0)
    }

    /// As for `resolve`.
    async fn break_claim(&self, key: Key, expected: Token) -> Result<Broken, StoreError> {
        let call = || self.store.break_claim(key, expected);
        Ok(match self.send(call).await? {
            (Broken::Conflict { token }, true) if token > expected => Broken::Broken { token },
            (answer, _) => answer,
        })
    }

    /// That the result is gone after a lost reply, is one's own work; the record tells the token.
    async fn purge(&self, key: Key, expected: Token) -> Result<Purged, StoreError> {
        let answer = self.send(|| self.store.purge(key, expected)).await?;
        let (Purged::Absent, true) = answer else {
            return Ok(answer.0);
        };
        let left = self.store.inner().peek(key).await?;
        let raised = left.map(|record| record.token);
        Ok(match raised.filter(|token| *token > expected) {
            Some(token) => Purged::Purged { token },
            None => Purged::Absent,
        })
    }
}
