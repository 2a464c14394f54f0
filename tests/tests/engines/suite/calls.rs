//! One call of each kind, and whether it was applied.

use std::fmt::Debug;
use std::time::Duration;

use tower_claim::store::{
    Beat, Broken, ClaimManyRequest, Claimed, ClaimedMany, Finish, FinishRequest, Marked, Owner,
    Purged, Release, Renewed, Resolution, Resolved, State, StoreTime, Value,
};
use tower_claim::{ClaimAdmin, ClaimMany, LapsePolicy, Settings, StoreError, Token};

use super::lost_answers::Trial;
use super::{claim, key, nonce, release};

/// The calls that change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Claim,
    ClaimMany,
    Renew,
    Mark,
    Finish,
    Release,
    Break,
    Resolve,
    Purge,
}

impl Call {
    pub(super) const ALL: [Call; 9] = [
        Call::Claim,
        Call::ClaimMany,
        Call::Renew,
        Call::Mark,
        Call::Finish,
        Call::Release,
        Call::Break,
        Call::Resolve,
        Call::Purge,
    ];
}

fn finish(owner: Owner) -> FinishRequest {
    FinishRequest {
        owner,
        value: Value::Kept("once".into()),
        keep: Duration::from_secs(60),
    }
}

/// The record that a call is about.
pub(super) struct Scene {
    pub(super) owner: Owner,
    pub(super) settings: Settings,
    pub(super) not_after: StoreTime,
}

impl<S: ClaimMany + ClaimAdmin, D: ClaimMany + ClaimAdmin> Trial<'_, S, D> {
    /// A fresh record, made past the relay.
    pub(super) async fn scene(&self) -> Scene {
        let not_after = self.direct.now().saturating_add(Duration::from_secs(60));
        let mut settings = Settings::new(Duration::from_secs(60));
        let owner = Owner {
            key: key(),
            nonce: nonce(),
            token: Token::ZERO,
        };
        match self.call {
            Call::Claim | Call::ClaimMany => {
                return Scene {
                    owner,
                    settings,
                    not_after,
                };
            }
            Call::Resolve => {
                settings.on_lapse = LapsePolicy::Hold;
            }
            _ => {}
        }
        let request = claim(&owner, &settings, not_after);
        let token = match self.direct.claim(request).await {
            Ok(Claimed::Granted(grant)) => grant.token,
            other => panic!("a free key: {other:?}"),
        };
        let owner = Owner { token, ..owner };
        if self.call == Call::Resolve {
            // A marked claim that is released is unknown at once.
            assert_eq!(self.direct.mark(owner).await.ok(), Some(Marked::Marked));
            let released = self.direct.release(release(&owner, not_after)).await;
            assert_eq!(released.ok(), Some(Release::Released));
        }
        if self.call == Call::Purge {
            let finished = self.direct.finish(finish(owner)).await;
            assert_eq!(finished.ok(), Some(Finish::Finished));
        }
        Scene {
            owner,
            settings,
            not_after,
        }
    }

    pub(super) async fn send(&self, scene: &Scene) -> Result<(), StoreError> {
        let (store, owner) = (self.store, scene.owner);
        match self.call {
            Call::Claim => match store
                .claim(claim(&owner, &scene.settings, scene.not_after))
                .await?
            {
                Claimed::Granted(_) | Claimed::Mine { .. } => Ok(()),
                other => self.unexpected(other),
            },
            Call::ClaimMany => {
                let keys = [owner.key];
                let request = ClaimManyRequest {
                    keys: &keys,
                    nonce: owner.nonce,
                    settings: &scene.settings,
                    floor: Token::ZERO,
                    not_after: scene.not_after,
                };
                match store.claim_many(request).await? {
                    ClaimedMany::Granted(_)
                    | ClaimedMany::Refused {
                        by: Claimed::Mine { .. },
                        ..
                    } => Ok(()),
                    other => self.unexpected(other),
                }
            }
            Call::Renew => {
                let beat = Beat { owner, progress: 7 };
                match store.renew(&[beat]).await?.as_slice() {
                    [Renewed::Renewed { .. }] => Ok(()),
                    other => self.unexpected(other),
                }
            }
            Call::Mark => match store.mark(owner).await? {
                Marked::Marked => Ok(()),
                other => self.unexpected(other),
            },
            Call::Finish => match store.finish(finish(owner)).await? {
                Finish::Finished => Ok(()),
                other => self.unexpected(other),
            },
            Call::Release => match store.release(release(&owner, scene.not_after)).await? {
                Release::Released | Release::Already => Ok(()),
                other => self.unexpected(other),
            },
            Call::Break => match store.break_claim(owner.key, owner.token).await? {
                Broken::Broken { .. } | Broken::Absent => Ok(()),
                Broken::Conflict { token } if token > owner.token => Ok(()),
                other => self.unexpected(other),
            },
            Call::Resolve => {
                let result = Resolution::Done(Value::Tombstone, Duration::from_secs(60));
                match store.resolve(owner.key, owner.token, result).await? {
                    Resolved::Resolved { .. } => Ok(()),
                    Resolved::Conflict { token } if token > owner.token => Ok(()),
                    other => self.unexpected(other),
                }
            }
            Call::Purge => match store.purge(owner.key, owner.token).await? {
                Purged::Purged { .. } | Purged::Absent => Ok(()),
                other => self.unexpected(other),
            },
        }
    }

    pub(super) fn unexpected(&self, answer: impl Debug) -> ! {
        panic!("{:?}: answered {answer:?}", self.call)
    }

    pub(super) async fn applied(&self, scene: &Scene) -> bool {
        let Some(record) = self.record(scene).await else {
            // Free and forgotten.
            return matches!(self.call, Call::Release | Call::Break | Call::Purge);
        };
        match self.call {
            Call::Claim | Call::ClaimMany => {
                record.state == State::Held && record.nonce == scene.owner.nonce
            }
            Call::Renew => record.progress == 7,
            Call::Mark => record.marked,
            Call::Finish | Call::Resolve => record.state == State::Done,
            Call::Release | Call::Purge => record.state == State::Free,
            Call::Break => record.state != State::Held,
        }
    }
}
