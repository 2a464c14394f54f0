//! Claims.

use std::time::Duration;

use bytes::Bytes;
use tower_claim::store::{
    Busy, ClaimRequest, Claimed, Cooling, DoneRecord, Grant, StoreTime, Unknown, Value,
};
use tower_claim::{Fingerprint, LapsePolicy, Settings, StoreError, Token};

use super::{LONGEST, Record, Records, State};

pub(super) fn time(at: StoreTime) -> Duration {
    Duration::from_micros(at.as_micros())
}

/// What a claim would be answered.
pub(super) enum Judgement {
    Grant,
    TakeOver,
    Answer(Claimed),
}

impl Records {
    pub(super) fn claim(&mut self, request: ClaimRequest<'_>) -> Result<Claimed, StoreError> {
        let takes_over = match self.judge(&request) {
            Judgement::Answer(answer) => {
                let first = self.first_refused.entry(request.nonce);
                first.or_insert(self.now);
                return Ok(answer);
            }
            Judgement::TakeOver => true,
            Judgement::Grant => false,
        };
        let last = self.get(request.key).token.max(request.floor);
        if last == Token::MAX && !self.breaks("the last token is granted again") {
            return Err(StoreError::Unsupported("no token is left"));
        }
        Ok(Claimed::Granted(self.grant(&request, takes_over)))
    }

    pub(super) fn judge(&mut self, request: &ClaimRequest<'_>) -> Judgement {
        let now = self.now;
        let late = now > time(request.not_after) && !self.breaks("not_after is ignored")
            || request.not_after == StoreTime::NEVER && self.breaks("never is the past");
        if late || self.breaks("every not_after has passed") {
            return Judgement::Answer(Claimed::TooLate);
        }
        let record = self.get(request.key);
        let asked = request.fingerprint;
        if record.state == State::Held && record.nonce == request.nonce {
            if let Some(answer) = record.mine(now) {
                return Judgement::Answer(answer);
            }
        } else if record.remembers(request, now) {
            return Judgement::Answer(Claimed::Ended);
        }
        match &record.state {
            State::Free => record.judge_free(asked, now),
            State::Done { value, until } => {
                let same =
                    record.same(asked) || record.breaks("done calls every fingerprint the same");
                let answer = record.done(value, *until, same, now);
                Judgement::Answer(Claimed::Done(answer))
            }
            State::Unknown { .. } => {
                let every = record.breaks("unknown calls every fingerprint the same");
                Judgement::Answer(Claimed::Unknown(Unknown {
                    token: record.token,
                    same_fingerprint: record.same(asked) || every,
                }))
            }
            State::Held if record.lapsed(now) => record.judge_lapsed(request, now),
            State::Held if record.breaks("a held key is granted again") => Judgement::Grant,
            State::Held => Judgement::Answer(record.busy(request, now)),
        }
    }

    pub(super) fn grant(&mut self, request: &ClaimRequest<'_>, takes_over: bool) -> Grant {
        let (now, unix_ms) = (self.now, self.unix.as_millis() as u64);
        let refused = self.first_refused.get(&request.nonce).copied();
        let record = self.get(request.key);
        let floor = match record.breaks("the floor is ignored") {
            true => Token::ZERO,
            false => request.floor,
        };
        let mut token = Token::next(record.token, floor, unix_ms);
        let forgotten =
            record.attempt > 0 && now > record.latest_not_after && record.state == State::Free;
        let gone = record.token == Token::ZERO && record.attempt > 0;
        let keeps = takes_over && record.breaks("a takeover keeps the token");
        if keeps || record.breaks("a release forgets the token") && record.attempt > 0 {
            token = record.token;
        } else if (forgotten && record.breaks("a forgotten key restarts its tokens")) || gone {
            token = Token::new(1).unwrap();
        } else if record.breaks("a floor replaces the token") && request.floor > Token::ZERO {
            token = Token::new(request.floor.get() + 1).unwrap();
        } else if record.breaks("the token is the clock alone") {
            token = Token::new(unix_ms * 1024).unwrap();
        } else if record.spent.len() % 3 == 2
            && record.breaks("every third token is drawn at random")
        {
            let [a, b, ..] = *request.nonce.as_bytes();
            token = Token::new(u64::from(u16::from_be_bytes([a, b])) + 1).unwrap();
        }
        let before = record.before(now);
        record.marked &= record.breaks("the mark outlives its record");
        record.revoke_asked &= record.breaks("a wish to stop outlives its hold");
        record.broken = false;
        record.attempt = match takes_over && !record.breaks("every grant is attempt 1") {
            true => record.attempt + 1,
            false => 1,
        };
        if takes_over && record.breaks("a superseded nonce is forgotten") {
            record.spent.remove(&record.nonce.clone());
        }
        if record.breaks("a grant forgets the nonces before it") {
            record.spent.clear();
        }
        record.become_now(State::Held, now);
        record.nonce = request.nonce;
        record.token = token;
        record.fingerprint = request.fingerprint;
        record.terms = record.terms_of(request.settings);
        record.granted = now;
        record.last_beat = now;
        record.progress = 0;
        let from = match record.breaks("a lease counts from the first refusal") {
            true => refused.unwrap_or(now),
            false => now,
        };
        record.end = from + record.terms.lease;
        record.spend(request.nonce, now);
        record.latest_not_after = record.latest_not_after.max(time(request.not_after));
        let lease = record.terms.lease;
        Grant {
            token,
            lease: match record.breaks("the lease told is twice the lease") {
                true => lease * 2,
                false => lease,
            },
            attempt: record.attempt,
            took_over: (takes_over && !record.breaks("a takeover tells nothing")).then_some(before),
        }
    }
}

impl Record {
    fn terms_of(&self, asked: &Settings) -> Settings {
        let span = |span: Duration| match self.flaw {
            "a span without end is none" if span == Duration::MAX => Duration::ZERO,
            "100 years are too long" if span >= LONGEST / 10 => LONGEST / 1000,
            _ => span.min(LONGEST),
        };
        let mut terms = asked.clone();
        terms.lease = span(asked.lease);
        terms.cooling = span(asked.cooling);
        terms.min_hold = span(asked.min_hold);
        terms.unfinished_keep = span(asked.unfinished_keep);
        if self.breaks("labels are ASCII") {
            let ascii: String = asked.label.chars().filter(char::is_ascii).collect();
            terms.label = ascii.into();
        }
        if self.breaks("labels have no zero") {
            terms.label = asked.label.replace('\0', "\u{fffd}").into();
        }
        terms
    }

    fn mine(&mut self, now: Duration) -> Option<Claimed> {
        let full = self.terms.lease;
        if self.breaks("the same nonce is busy") {
            return None;
        }
        if self.lapsed(now) && self.breaks("a lapsed nonce is granted again") {
            self.end = now + full;
        }
        if !self.lapsed(now) && self.breaks("mine renews") {
            self.end = now + full;
        }
        Some(Claimed::Mine {
            token: self.token,
            rest: match self.breaks("mine tells a full lease") {
                true => full,
                false => self.end.saturating_sub(now),
            },
            attempt: match self.breaks("mine tells attempt 1") {
                true => 1,
                false => self.attempt,
            },
        })
    }

    fn remembers(&self, request: &ClaimRequest<'_>, now: Duration) -> bool {
        let Some(&(when, nth)) = self.spent.get(&request.nonce) else {
            return false;
        };
        let never = request.not_after == StoreTime::NEVER;
        if never && self.breaks("a nonce that is never too late is forgotten") {
            return false;
        }
        let short = self.breaks("a spent nonce is remembered for one lease");
        let few = self.breaks("only the last two spent nonces are remembered");
        !(short && now > when + request.settings.lease || few && nth + 2 < self.spent.len())
    }

    fn judge_free(&self, asked: Option<Fingerprint>, now: Duration) -> Judgement {
        let forgets = self.breaks("min_hold ends with the not_after");
        let remaining = match forgets && now > self.latest_not_after {
            true => Duration::ZERO,
            false => self.not_before.saturating_sub(now),
        };
        if !remaining.is_zero() {
            return Judgement::Answer(Claimed::Cooling(Cooling {
                remaining,
                same_fingerprint: true,
            }));
        }
        let bound = self.fingerprint.is_some() && !self.same(asked);
        if self.breaks("a free key is refused") || bound {
            return Judgement::Answer(Claimed::TooLate);
        }
        Judgement::Grant
    }

    fn judge_lapsed(&self, request: &ClaimRequest<'_>, now: Duration) -> Judgement {
        let theirs = request.settings;
        let mut cooling = self.terms.cooling;
        if self.breaks("the asker's cooling judges") {
            cooling = theirs.cooling;
        } else if self.breaks("cooling is ignored") {
            cooling = Duration::ZERO;
        } else if self.breaks("cooling never ends") && !cooling.is_zero() {
            cooling = Duration::from_secs(1000);
        }
        let until = (self.end + cooling).max(self.min_hold_end("lapse"));
        let remaining = until.saturating_sub(now);
        let same = self.same(request.fingerprint);
        let keep_over = now >= self.end + theirs.unfinished_keep;
        if !remaining.is_zero() {
            let silent = self.breaks("cooling tells nothing");
            return Judgement::Answer(Claimed::Cooling(Cooling {
                remaining: if silent { Duration::ZERO } else { remaining },
                same_fingerprint: same,
            }));
        }
        if self.breaks("the asker's policy judges") && theirs.on_lapse == LapsePolicy::Hold {
            return Judgement::Answer(Claimed::Unknown(Unknown {
                token: self.token,
                same_fingerprint: same,
            }));
        }
        let anyone = self.breaks("a takeover asks for no fingerprint")
            || self.breaks("the asker's keep judges") && keep_over;
        if !(same || anyone) || self.breaks("a lapsed hold is busy for ever") {
            return Judgement::Answer(self.busy(request, now));
        }
        Judgement::TakeOver
    }

    fn busy(&self, request: &ClaimRequest<'_>, now: Duration) -> Claimed {
        let every = self.breaks("busy calls every fingerprint the same");
        Claimed::Busy(Busy {
            token: self.token,
            since: now - self.granted,
            expires_in: self.end.saturating_sub(now),
            same_fingerprint: self.same(request.fingerprint) || every,
            label: match self.breaks("busy tells the asker's label") {
                true => request.settings.label.clone(),
                false => self.terms.label.clone(),
            },
        })
    }

    fn body(&self, body: &Bytes) -> Value {
        let len = match self.flaw {
            "an empty body is answered as a tombstone" if body.is_empty() => {
                return Value::Tombstone;
            }
            "a body ends at its first zero" => body.iter().position(|byte| *byte == 0),
            "a body is cut at 64 KiB" => Some(1 << 16),
            _ => None,
        };
        Value::Kept(body.slice(..len.unwrap_or(body.len()).min(body.len())))
    }

    pub(super) fn done(
        &self,
        value: &Value,
        until: Duration,
        same_fingerprint: bool,
        now: Duration,
    ) -> DoneRecord {
        let silent = self.breaks("done tells no age");
        DoneRecord {
            token: self.token,
            same_fingerprint,
            value: match value {
                Value::Tombstone if self.breaks("a tombstone is answered as an empty body") => {
                    Value::Kept(Default::default())
                }
                Value::Kept(body) => self.body(body),
                _ => value.clone(),
            },
            finished: if silent {
                Duration::ZERO
            } else {
                now - self.since
            },
            keep_left: until - now,
        }
    }
}
