//! A store that breaks one rule.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tower_claim::store::{
    Beat, Capabilities, ClaimRequest, Claimed, Event, Finish, FinishRequest, Grant, Marked, Owner,
    Promise, RecordView, Release, ReleaseRequest, Renewed, StoreTime, Watched, Weakened,
};
use tower_claim::{ClaimStore, DynClaimStore, Key, StoreError, Token};

use super::Engine;
use super::engines::redis::One;

/// The rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// A takeover answers the token of the owner before.
    OldToken,
    /// Leases are told three times as long.
    LongLease,
    /// A failed call answers nothing, ever.
    NoAnswer,
    /// What was perhaps applied is called not applied.
    Unavailable,
    /// A held key is granted.
    TwoOwners,
    /// The same nonce has a full lease again.
    Regrant,
    /// Beats are answered, and not sent.
    DeafToBeats,
    /// Releases are answered, and not sent.
    DeafToReleases,
    /// Whoever waits is not woken.
    Asleep,
    /// An unfinished record is kept for ever.
    Hoarder,
    /// Nothing is said to be weakened.
    Boaster,
    /// More is said to be weakened than is.
    Pessimist,
}

#[derive(Debug)]
pub struct Liar {
    pub inner: Arc<dyn DynClaimStore>,
    pub lie: Lie,
}

impl Liar {
    async fn tell<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        match (call.await, self.lie) {
            (Err(_), Lie::NoAnswer) => pending().await,
            (Err(StoreError::Ambiguous(source)), Lie::Unavailable) => {
                Err(StoreError::Unavailable(source))
            }
            (answer, _) => answer,
        }
    }
}

impl ClaimStore for Liar {
    fn capabilities(&self) -> Capabilities {
        let mut told = self.inner.dyn_capabilities();
        match self.lie {
            Lie::Boaster => told.weakened = Weakened::NOTHING,
            Lie::Pessimist => told = told.with_weakened(Event::Flush, Promise::ALL),
            _ => {}
        }
        told
    }

    fn now(&self) -> StoreTime {
        self.inner.dyn_now()
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        let mut settings = request.settings.clone();
        if self.lie == Lie::Hoarder {
            settings.unfinished_keep = Duration::from_secs(3600);
        }
        let request = ClaimRequest {
            settings: &settings,
            ..request
        };
        let mut answer = self.tell(self.inner.dyn_claim(request)).await?;
        match (&mut answer, self.lie) {
            (Claimed::Granted(grant), Lie::OldToken) => {
                if let Some(before) = &grant.took_over {
                    grant.token = before.token;
                }
            }
            (Claimed::Granted(grant), Lie::LongLease) => grant.lease *= 3,
            (Claimed::Mine { rest, .. }, Lie::Regrant) => *rest = settings.lease,
            (Claimed::Busy(busy), Lie::TwoOwners) => {
                answer = Claimed::Granted(Grant {
                    token: Token::new(busy.token.get() + 1).expect("below the highest"),
                    lease: settings.lease,
                    attempt: 1,
                    took_over: None,
                });
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        if self.lie == Lie::DeafToBeats {
            let yes = Renewed::Renewed {
                rest: One::lease(),
                revoke_asked: false,
            };
            return Ok(vec![yes; beats.len()]);
        }
        let mut answers = self.tell(self.inner.dyn_renew(beats)).await?;
        if self.lie == Lie::LongLease {
            for answer in &mut answers {
                if let Renewed::Renewed { rest, .. } = answer {
                    *rest *= 3;
                }
            }
        }
        Ok(answers)
    }

    async fn mark(&self, owner: Owner) -> Result<Marked, StoreError> {
        self.tell(self.inner.dyn_mark(owner)).await
    }

    async fn finish(&self, request: FinishRequest) -> Result<Finish, StoreError> {
        self.tell(self.inner.dyn_finish(request)).await
    }

    async fn release(&self, request: ReleaseRequest) -> Result<Release, StoreError> {
        if self.lie == Lie::DeafToReleases {
            return Ok(Release::Released);
        }
        self.tell(self.inner.dyn_release(request)).await
    }

    async fn watch(&self, key: Key, token: Token) -> Result<Watched, StoreError> {
        if self.lie == Lie::Asleep {
            return pending().await;
        }
        self.tell(self.inner.dyn_watch(key, token)).await
    }

    async fn peek(&self, key: Key) -> Result<Option<RecordView>, StoreError> {
        self.tell(self.inner.dyn_peek(key)).await
    }

    async fn keeper_store(&self) -> Result<Arc<dyn DynClaimStore>, StoreError> {
        let inner = self.inner.dyn_keeper_store().await?;
        let lie = self.lie;
        Ok(Arc::new(Self { inner, lie }))
    }
}
