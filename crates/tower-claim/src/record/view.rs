//! What a record shows.

use std::sync::Arc;

use super::{At, Phase, Record, Standing, value_of};
use crate::store::{DoneRecord, RecordView, State, StoreTime, Watched};
use crate::{Key, Token};

/// Answer to whoever waits for the end of a hold.
#[derive(Debug)]
pub enum Watching {
    /// It is over.
    Over(Watched),
    /// It goes on, and lapses then unless it is renewed.
    Until(StoreTime),
}

impl Record {
    pub(super) fn label(&self) -> Arc<str> {
        self.term(None, |terms| Some(Arc::clone(&terms.label)))
            .unwrap_or_else(|| Arc::from(""))
    }

    pub(super) fn done(&self, same_fingerprint: bool, now: StoreTime) -> Option<DoneRecord> {
        let Phase::Done { body, .. } = &self.phase else {
            return None;
        };
        Some(DoneRecord {
            token: self.token,
            same_fingerprint,
            value: value_of(body),
            finished: now.saturating_since(self.since),
            keep_left: self.until.saturating_since(now),
        })
    }

    /// What became of the hold with this token.
    pub fn watch(&self, token: Token, at: At) -> Watching {
        let standing = self.standing(at.now);
        Watching::Over(if self.token == token {
            match standing {
                Standing::Held => return Watching::Until(self.until),
                Standing::Done => match self.done(true, at.now) {
                    Some(done) => Watched::Done(done),
                    None => Watched::Ended,
                },
                Standing::Lapsed | Standing::Unknown | Standing::Free => Watched::Ended,
            }
        } else {
            match standing {
                Standing::Held | Standing::Lapsed | Standing::Done if self.token > token => {
                    Watched::Superseded { token: self.token }
                }
                _ => Watched::Ended,
            }
        })
    }

    /// The record as people see it.
    pub fn peek(&self, key: Key, at: At) -> RecordView {
        let now = at.now;
        let (state, since, until) = match (self.standing(now), &self.phase) {
            (Standing::Free, _) => (State::Free, self.ends_at(), self.not_before()),
            (Standing::Held | Standing::Lapsed, _) => (State::Held, self.since, self.until),
            (Standing::Unknown, Phase::Held { .. }) => (State::Unknown, self.until, self.ends_at()),
            (Standing::Unknown, _) => (State::Unknown, self.since, self.until),
            (Standing::Done, _) => (State::Done, self.since, self.until),
        };
        let mut view = RecordView::new(key, state);
        view.token = self.token;
        view.nonce = self.nonce;
        view.since = now.saturating_since(since);
        view.expires_in = until.saturating_since(now);
        if state == State::Free {
            return view;
        }
        view.label = self.label();
        view.fingerprint = self.phase.fingerprint();
        match self.phase {
            Phase::Held {
                last_beat,
                progress,
                marked,
                attempt,
                ..
            } => {
                view.last_beat = now.saturating_since(last_beat);
                view.progress = progress;
                view.marked = marked;
                view.attempt = attempt;
                view.lapsed = now >= self.until;
            }
            Phase::Unknown {
                last_beat,
                progress,
                marked,
                ..
            } => {
                view.last_beat = now.saturating_since(last_beat);
                view.progress = progress;
                view.marked = marked;
            }
            Phase::Vacant | Phase::Free { .. } | Phase::Done { .. } => {}
        }
        view
    }
}
