//! What an owner does with its claim.

use std::sync::Arc;
use std::time::Duration;

use super::{At, Phase, Record, Standing};
use crate::Settings;
use crate::store::{
    Beat, Finish, FinishRequest, LostReason, Marked, Owner, Release, ReleaseRequest, Renewed,
    StoreTime, Value,
};

impl Record {
    /// One beat.
    pub fn renew(&mut self, beat: &Beat, at: At) -> Renewed {
        if let Some(reason) = self.loss(beat.owner, at.now) {
            return Renewed::Lost(reason);
        }
        let lease = self.term(Duration::ZERO, |terms| terms.lease);
        // A beat that arrives late, or a lease shorter than what is left, shortens nothing.
        self.until = self.until.max(at.now.saturating_add(lease));
        let rest = self.until.saturating_since(at.now);
        let mut asked = false;
        if let Phase::Held {
            last_beat,
            progress,
            revoke_asked,
            ..
        } = &mut self.phase
        {
            *last_beat = at.now;
            *progress = beat.progress.max(*progress);
            asked = *revoke_asked;
        }
        Renewed::Renewed {
            rest,
            revoke_asked: asked,
        }
    }

    /// The point of no return.
    pub fn mark(&mut self, owner: Owner, at: At) -> Marked {
        if let Some(reason) = self.loss(owner, at.now) {
            return Marked::Lost(reason);
        }
        if let Phase::Held { marked, .. } = &mut self.phase {
            *marked = true;
        }
        Marked::Marked
    }

    /// Why this owner does not hold the key any more; `None` when it does.
    fn loss(&self, owner: Owner, now: StoreTime) -> Option<LostReason> {
        if !self.is_last(owner.nonce) {
            return Some(LostReason::Superseded);
        }
        if owner.token != self.token {
            // Nobody else was granted the key, and the token is another one: an operator raised it.
            return Some(LostReason::Broken);
        }
        match (&self.phase, self.standing(now)) {
            (_, Standing::Held) => None,
            (Phase::Held { .. }, Standing::Lapsed | Standing::Unknown) => Some(LostReason::Lapsed),
            _ => Some(LostReason::Superseded),
        }
    }

    /// Finishes the work. The token decides, not time. Takes the value out of the request where it keeps it.
    pub fn finish(&mut self, request: &mut FinishRequest, at: At) -> Finish {
        let owner = request.owner;
        if !self.is_last(owner.nonce) || owner.token != self.token {
            return Finish::Lost;
        }
        match (&self.phase, self.standing(at.now)) {
            (_, Standing::Free) => Finish::Lost,
            // The first value wins.
            (Phase::Done { .. }, _) => Finish::Finished,
            (Phase::Held { .. }, _) => {
                let value = std::mem::replace(&mut request.value, Value::Tombstone);
                self.conclude(value, request.keep, self.min_hold_end(), at);
                Finish::Finished
            }
            (Phase::Vacant | Phase::Free { .. } | Phase::Unknown { .. }, _) => Finish::Lost,
        }
    }

    /// The result stays at least as long as the key has to stay taken.
    pub(super) fn conclude(&mut self, value: Value, keep: Duration, not_before: StoreTime, at: At) {
        let left = not_before.saturating_since(at.now);
        let own = self.terms.as_deref().filter(|_| !left.is_zero());
        let own = own.map(|terms| Settings {
            min_hold: left,
            ..terms.clone()
        });
        self.phase = Phase::Done {
            not_after: self.phase.not_after(),
            fingerprint: self.phase.fingerprint(),
            stays_taken: own.is_some(),
            body: match value {
                Value::Kept(body) => Some(body),
                Value::Tombstone => None,
            },
        };
        self.terms = own.map(Arc::new).or_else(|| self.terms.take());
        self.since = at.now;
        self.until = at.now.saturating_add(keep).max(not_before);
    }

    /// Gives the key back. Never touches a done record; a marked one becomes unknown.
    pub fn release(&mut self, request: &ReleaseRequest, at: At) -> Release {
        let ours = self.is_last(request.nonce);
        let holds = ours && request.token.is_none_or(|token| token == self.token);
        let answer = match (&self.phase, self.standing(at.now)) {
            (
                &Phase::Held {
                    last_beat,
                    progress,
                    marked: true,
                    ..
                },
                Standing::Held,
            ) if holds => {
                self.become_unknown(last_beat, progress, true, self.min_hold_end(), at);
                Release::Released
            }
            (_, Standing::Held | Standing::Lapsed) if holds => {
                // A clean release does not cool.
                self.free(at.now, self.min_hold_end());
                Release::Released
            }
            (_, Standing::Done | Standing::Unknown) if ours => Release::Lost,
            _ => Release::Already,
        };
        self.remember(request.nonce, request.not_after, at.now);
        answer
    }

    /// Unknown for good: only an operator or the unfinished keep ends it.
    pub(super) fn become_unknown(
        &mut self,
        last_beat: StoreTime,
        progress: u64,
        marked: bool,
        not_before: StoreTime,
        at: At,
    ) {
        let keep = self.term(Duration::ZERO, |terms| terms.unfinished_keep);
        self.phase = Phase::Unknown {
            not_after: self.phase.not_after(),
            fingerprint: self.phase.fingerprint(),
            not_before,
            last_beat,
            progress,
            marked,
        };
        self.since = at.now;
        self.until = at.now.saturating_add(keep);
    }
}
