//! What a record shows, by the wall clocks of those who wrote it.

use std::time::Duration;

use tower_claim::store::{DoneRecord, RecordView, State, Value, Watched};
use tower_claim::{Key, Token};

use super::{Phase, Record, Seen, Standing};

/// So long something that exists still lasts at least, whatever the wall clocks say.
const A_LITTLE: Duration = Duration::from_millis(250);

pub(super) fn rest(until: u64, now: u64, most: Duration) -> Duration {
    Duration::from_millis(until.saturating_sub(now)).clamp(A_LITTLE.min(most), most)
}

pub(super) fn ago(then: u64, now: u64) -> Duration {
    Duration::from_millis(now.saturating_sub(then))
}

impl Seen {
    /// What is left of the lease: zero once it has lapsed.
    pub(super) fn lease_left(&self, record: &Record, now: u64) -> Duration {
        if self.live.is_some() {
            rest(record.lapse(), now, Duration::from_secs(record.lease_secs))
        } else {
            Duration::ZERO
        }
    }

    pub(super) fn done(&self, same_fingerprint: bool, now: u64) -> Option<DoneRecord> {
        let record = self.last()?;
        let Phase::Done(body) = &record.phase else {
            return None;
        };
        Some(DoneRecord {
            token: record.token,
            same_fingerprint,
            value: body.clone().map_or(Value::Tombstone, Value::Kept),
            finished: ago(record.since, now),
            keep_left: ago(now, record.until),
        })
    }

    /// What became of the hold with this token; how long it still lasts, about, while it goes on.
    pub(crate) fn watch(&self, token: Token, now: u64) -> Result<Watched, Duration> {
        let standing = self.standing();
        let Some(record) = self.last() else {
            return Ok(Watched::Ended);
        };
        if record.token == token {
            match standing {
                Standing::Held => Err(self.lease_left(record, now)),
                Standing::Done => Ok(self.done(true, now).map_or(Watched::Ended, Watched::Done)),
                _ => Ok(Watched::Ended),
            }
        } else {
            match standing {
                Standing::Held | Standing::Lapsed | Standing::Done if record.token > token => {
                    Ok(Watched::Superseded {
                        token: record.token,
                    })
                }
                _ => Ok(Watched::Ended),
            }
        }
    }

    /// The record as people see it.
    pub(crate) fn peek(&self, key: Key, now: u64) -> Option<RecordView> {
        let standing = self.standing();
        let cooling = self.cooling(now);
        let Some(record) = self.last() else {
            let mut view = RecordView::new(key, State::Free);
            view.expires_in = cooling;
            return (!cooling.is_zero()).then_some(view);
        };
        let keep = u64::try_from(record.terms.unfinished_keep.as_millis()).unwrap_or(u64::MAX);
        let lapse = record.lapse();
        let (state, since, expires_in) = match (standing, &record.phase) {
            (Standing::Free, _) => (State::Free, record.since, cooling),
            (Standing::Held | Standing::Lapsed, _) => {
                (State::Held, record.since, self.lease_left(record, now))
            }
            (Standing::Unknown, Phase::Held) => {
                let end = lapse.saturating_add(keep);
                (State::Unknown, lapse, ago(now, end))
            }
            (Standing::Unknown, _) => (State::Unknown, record.since, ago(now, record.until)),
            (Standing::Done, _) => (State::Done, record.since, ago(now, record.until)),
        };
        let mut view = RecordView::new(key, state);
        view.token = record.token;
        view.nonce = record.nonce;
        view.since = ago(since, now);
        view.expires_in = expires_in;
        if state == State::Free {
            return Some(view);
        }
        view.label = record.terms.label.clone();
        view.fingerprint = record.fingerprint;
        if matches!(record.phase, Phase::Held | Phase::Unknown) {
            view.last_beat = ago(record.last_beat, now);
            view.progress = record.progress;
            view.marked = record.marked;
            view.lapsed = record.phase == Phase::Held && self.live.is_none();
            if record.phase == Phase::Held {
                view.attempt = record.attempt;
            }
        }
        Some(view)
    }
}
