//! What the keeper does for claims that are gone: releases, and finishes in doubt.

use std::sync::Arc;
use std::time::Duration;

use super::hold::{Hold, Keys};
use super::timing::Timing;
use super::told;
use super::worker::Line;
use crate::store::{FinishRequest, Release, ReleaseRequest, State, StoreTime};
use crate::wait::{answer, insist};
use crate::{Clock, DynClaimStore, Moment, Nonce, StoreError, Token};

/// What a wait for another clock is rounded up to.
const GRAIN: Duration = Duration::from_millis(1);

/// A message to the keeper.
#[derive(Debug)]
pub(super) enum Job {
    /// A claim was dropped unfinished, or its release is in doubt.
    Release(Arc<Hold>),
    /// A claim ended with a copy unanswered: it may hold, or may still be under way.
    Forget(Forget),
    /// A finish is in doubt.
    Finish(UnsettledFinish),
}

/// The claims sent under one nonce.
#[derive(Debug, Clone)]
pub(super) struct Forget {
    pub(super) keys: Keys,
    pub(super) nonce: Nonce,
    pub(super) not_after: StoreTime,
    pub(super) timing: Timing,
    /// A claim that took over from a lapsed owner is not given back.
    pub(super) lapses_takeovers: bool,
}

impl Forget {
    pub(super) fn releases(&self) -> impl Iterator<Item = ReleaseRequest> + '_ {
        self.keys.as_slice().iter().map(|&key| ReleaseRequest {
            key,
            nonce: self.nonce,
            token: None,
            not_after: self.not_after,
        })
    }

    /// Gives back what is held by the nonce, and spends it: no copy of its claim under way is granted any more.
    pub(super) async fn give_back(
        &self,
        store: &dyn DynClaimStore,
        request: ReleaseRequest,
    ) -> Result<Release, StoreError> {
        if !self.lapses_takeovers {
            return store.dyn_release(request).await;
        }
        // No grant has this token: the nonce is spent, and what it holds stays, to be looked at.
        let spend = ReleaseRequest {
            token: Some(Token::ZERO),
            ..request
        };
        let spent = store.dyn_release(spend).await?;
        let record = store.dyn_peek(request.key).await?;
        match record.filter(|it| it.nonce == request.nonce && it.state == State::Held) {
            None => Ok(spent),
            // Nobody renews it: it lapses.
            Some(record) if record.attempt > 1 => Ok(Release::Released),
            Some(_) => store.dyn_release(request).await,
        }
    }
}

/// A finish that was sent and not answered.
#[derive(Debug, Clone)]
pub(super) struct UnsettledFinish {
    pub(super) request: FinishRequest,
    pub(super) until: Moment,
    pub(super) timing: Timing,
}

impl Job {
    pub(super) async fn run(self, clock: &dyn Clock, line: &Line) {
        match self {
            Job::Release(hold) => {
                // A beat under way could keep the hold alive after its release (dynamodb-lock-client #116).
                hold.no_beat_under_way(clock).await;
                // By then the lease has lapsed by itself.
                let until = clock.now() + hold.timing.lease;
                for request in hold.releases() {
                    let _ = release(clock, line, hold.timing, until, request).await;
                }
            }
            Job::Forget(forget) => forget.run(clock, line).await,
            Job::Finish(finish) => {
                let UnsettledFinish {
                    request,
                    until,
                    timing,
                } = finish;
                let answer = insist(clock, timing, until, || async {
                    line.store().await?.dyn_finish(request.clone()).await
                });
                told::brought_home(request.owner, answer.await);
            }
        }
    }
}

impl Forget {
    /// Gives back at once, so that the key is not blocked; and, where that found nothing to release, once
    /// more when the last copy can change nothing any more.
    async fn run(self, clock: &dyn Clock, line: &Line) {
        let until = clock.now() + self.timing.lease + self.timing.attempt;
        let mut all_found = true;
        for request in self.releases() {
            let answer = self.insist(clock, line, until, request).await;
            all_found &= answer == Some(Release::Released);
        }
        if all_found {
            return;
        }
        let Ok(store) = answer(clock, clock.now() + self.timing.attempt, line.store()).await else {
            return;
        };
        // By the store's clock, which a reply may have corrected meanwhile; by ours at most twice as long.
        let left = || self.not_after.saturating_since(store.dyn_now());
        let patience = clock.now() + left() * 2 + GRAIN;
        while clock.now() < patience && store.dyn_now() <= self.not_after {
            let pause = left().max(GRAIN);
            clock.sleep_until((clock.now() + pause).min(patience)).await;
        }
        let until = clock.now() + self.timing.lease;
        for request in self.releases() {
            let _ = self.insist(clock, line, until, request).await;
        }
    }

    async fn insist(
        &self,
        clock: &dyn Clock,
        line: &Line,
        until: Moment,
        request: ReleaseRequest,
    ) -> Option<Release> {
        let call = || async { self.give_back(&**line.store().await?, request).await };
        insist(clock, self.timing, until, call).await
    }
}

async fn release(
    clock: &dyn Clock,
    line: &Line,
    timing: Timing,
    until: Moment,
    request: ReleaseRequest,
) -> Option<Release> {
    let call = || async { line.store().await?.dyn_release(request).await };
    insist(clock, timing, until, call).await
}
