//! What owners send: beats, marks, results, releases.

use std::time::Duration;

use tower_claim::store::{
    Beat, Finish, FinishRequest, LostReason, Marked, Owner, Release, ReleaseRequest, Renewed,
};

use super::claim::time;
use super::{LONGEST, Record, Records, State};

impl Records {
    /// The record, if this owner holds it, by the rules of this operation.
    fn held(&mut self, owner: Owner, operation: &str) -> Result<&mut Record, LostReason> {
        let now = self.now;
        let record = self.find(owner.key).ok_or(LostReason::Superseded)?;
        let flaw = record.flaw.strip_prefix(operation).unwrap_or("");
        let anyone = flaw == " asks for no owner";
        let nonce = record.nonce == owner.nonce || flaw == " ignores the nonce" || anyone;
        let token = record.token == owner.token || flaw == " ignores the token" || anyone;
        if record.broken && record.nonce == owner.nonce {
            return Err(match record.breaks("a broken owner is told superseded") {
                true => LostReason::Superseded,
                false => LostReason::Broken,
            });
        }
        if !(nonce && token) {
            return Err(match record.breaks("a superseded hold is told as lapsed") {
                true => LostReason::Lapsed,
                false => LostReason::Superseded,
            });
        }
        match record.state {
            State::Held if !record.lapsed(now) => Ok(record),
            State::Held if flaw == " takes a lapsed hold" => Ok(record),
            State::Held | State::Unknown { by_lapse: true, .. } => Err(LostReason::Lapsed),
            _ => Err(LostReason::Superseded),
        }
    }

    pub(super) fn beat(&mut self, beat: &Beat) -> Renewed {
        let now = self.now;
        let flaw = self.flaw;
        if let Some(record) = self.find(beat.owner.key) {
            let over = match record.state {
                State::Free => flaw == "a released hold is renewed",
                State::Done { .. } => flaw == "a finished hold is renewed",
                State::Unknown { .. } => flaw == "an unknown hold is renewed",
                State::Held => false,
            };
            if over && record.is(beat.owner) {
                record.become_now(State::Held, now);
                record.end = now + record.terms.lease;
            }
        }
        match self.held(beat.owner, "a renewal") {
            Err(reason) => {
                if flaw == "a lost beat lengthens whatever hold there is"
                    && let Some(record) = self.find(beat.owner.key)
                {
                    record.end = record.end.max(now + record.terms.lease);
                }
                Renewed::Lost(reason)
            }
            Ok(record) => {
                record.last_beat = now;
                if flaw != "a beat carries no progress" {
                    let told = match flaw {
                        "progress is kept as a double" => beat.progress as f64 as u64,
                        _ => beat.progress,
                    };
                    record.progress = match flaw {
                        "a late beat turns progress back" => told,
                        _ => told.max(record.progress),
                    };
                }
                record.end = match flaw {
                    "a renewal renews nothing" => record.end,
                    "a renewal lasts for ever" => now + record.terms.lease * 1000,
                    "a renewal halves the lease" => now + record.terms.lease / 2,
                    _ => record.end.max(now + record.terms.lease),
                };
                Renewed::Renewed {
                    rest: match flaw {
                        "a renewal tells no rest" => Duration::ZERO,
                        _ => record.end - now,
                    },
                    revoke_asked: record.revoke_asked && flaw != "a wish to stop is not told",
                }
            }
        }
    }

    pub(super) fn mark(&mut self, owner: Owner) -> Marked {
        let (now, flaw) = (self.now, self.flaw);
        match self.held(owner, "a mark") {
            Err(reason) => Marked::Lost(reason),
            Ok(record) if record.marked && flaw == "a mark repeated is lost" => {
                Marked::Lost(LostReason::Superseded)
            }
            Ok(record) => {
                record.marked = true;
                if flaw == "a mark renews" {
                    record.end = now + record.terms.lease;
                }
                Marked::Marked
            }
        }
    }

    pub(super) fn finish(&mut self, request: FinishRequest) -> Finish {
        let (now, flaw) = (self.now, self.flaw);
        let owner = request.owner;
        if flaw == "finish makes a record" {
            let record = self.get(owner.key);
            if record.attempt == 0 {
                (record.nonce, record.token) = (owner.nonce, owner.token);
                record.state = State::Held;
            }
        }
        let Some(record) = self.find(owner.key) else {
            return Finish::Lost;
        };
        let anyone = flaw == "finish asks for no owner";
        let nonce = record.nonce == owner.nonce || flaw == "finish ignores the nonce" || anyone;
        let token = record.token == owner.token || flaw == "finish ignores the token" || anyone;
        let ended = matches!(
            flaw,
            "a broken hold can be finished" | "a purged hold can be finished"
        );
        let broken = record.nonce == owner.nonce && ended
            || record.broken && flaw == "a broken unknown can be finished"
            || flaw == "a resolved hold can be finished";
        let done = matches!(record.state, State::Done { .. });
        if done && flaw == "a done record is finished by anyone" {
            // Falls through to a new result.
        } else if !(nonce && token || broken) {
            return Finish::Lost;
        }
        let until = now + request.keep.min(LONGEST);
        match &mut record.state {
            State::Done { value, until: kept } => match flaw {
                "a finish repeated is lost" => return Finish::Lost,
                "the last value wins" => *value = request.value,
                "a finish repeated renews the keep" => *kept = until,
                "a resolved hold can be finished" | "a done record is finished by anyone" => {
                    *value = request.value;
                }
                _ => {}
            },
            State::Free if flaw != "a free record can be finished" && !broken => {
                return Finish::Lost;
            }
            State::Held if flaw == "a lapsed hold cannot be finished" && now >= record.end => {
                return Finish::Lost;
            }
            State::Held if flaw == "a marked hold cannot be finished" && record.marked => {
                return Finish::Lost;
            }
            State::Unknown { by_lapse, .. }
                if flaw == "unknown cannot be finished"
                    || flaw == "a marked hold cannot be finished" && record.marked
                    || !*by_lapse && !broken && flaw != "unknown by release can be finished" =>
            {
                return Finish::Lost;
            }
            _ => {
                let until = until.max(record.min_hold_end("result"));
                let until = match flaw {
                    "a result ends with the lease" => until.min(record.end),
                    "a result is kept for ever" => until + Duration::from_secs(1000),
                    _ => until,
                };
                let value = request.value;
                record.become_now(State::Done { value, until }, now);
                record.marked &= flaw == "the mark outlives its record";
                match flaw {
                    "a finished nonce is forgotten" => drop(record.spent.remove(&owner.nonce)),
                    "a result forgets its fingerprint" => record.fingerprint = None,
                    "a result is dropped" => record.free(now),
                    _ => {}
                }
            }
        }
        Finish::Finished
    }

    pub(super) fn release(&mut self, request: ReleaseRequest) -> Release {
        let (now, flaw) = (self.now, self.flaw);
        if flaw == "a release frees every key of its nonce" {
            let of_nonce = self.map.values_mut().filter(|r| r.nonce == request.nonce);
            of_nonce.for_each(|record| record.free(now));
            return Release::Released;
        }
        let record = self.get(request.key);
        record.latest_not_after = record.latest_not_after.max(time(request.not_after));
        let anyone = flaw == "a release asks for no owner" && record.attempt > 0;
        let ours = record.nonce == request.nonce || anyone || flaw == "a release ignores the nonce";
        let token = match request.token {
            Some(token) => token == record.token || flaw == "a release ignores the token" || anyone,
            None => flaw != "a release needs the token",
        };
        if matches!(record.state, State::Done { .. })
            && (flaw == "any release drops the result"
                || ours && flaw == "a release drops the result")
        {
            record.free(now);
            return if ours {
                Release::Lost
            } else {
                Release::Already
            };
        }
        if !ours {
            let live = record.state == State::Held;
            let forgets = flaw == "a release of nothing is not remembered"
                || live && flaw == "a release beside a live holder is not remembered";
            if !forgets {
                record.spend(request.nonce, now);
            }
            if flaw == "a release of nothing bars the key" {
                record.not_before = now + Duration::from_secs(10);
            }
            return Release::Already;
        }
        match record.state {
            State::Held if !token => return Release::Already,
            State::Held if flaw == "a release does nothing" => return Release::Released,
            State::Held if flaw == "a lapsed hold cannot be released" && record.lapsed(now) => {
                return Release::Lost;
            }
            State::Held => {}
            State::Free if flaw == "a release repeated is released" => return Release::Released,
            State::Free => return Release::Already,
            State::Unknown { by_lapse, .. } => {
                if by_lapse && flaw == "a release drops unknown"
                    || record.broken && flaw == "a release drops a broken unknown"
                {
                    record.free(now);
                }
                return Release::Lost;
            }
            State::Done { .. } => return Release::Lost,
        }
        record.give_back(now);
        Release::Released
    }
}

impl Record {
    fn give_back(&mut self, now: Duration) {
        let flaw = self.flaw;
        if self.marked && flaw != "a marked hold is released into free" {
            self.stay_taken(now, "marked release");
            let until = now + self.terms.unfinished_keep;
            let by_lapse = false;
            return self.become_now(State::Unknown { by_lapse, until }, now);
        }
        let fingerprint = self.fingerprint;
        let min_hold = self.terms.min_hold;
        let lapsed = self.lapsed(now);
        self.free(now);
        // A clean end: no cooling.
        self.not_before = match flaw {
            "a release cools" => now + self.terms.cooling,
            "a release after the lapse cools" if lapsed => self.end + self.terms.cooling,
            "min_hold never ends" if !min_hold.is_zero() => now + Duration::from_secs(1000),
            "min_hold counts from the release" => now + min_hold,
            _ => self.min_hold_end("release"),
        };
        match flaw {
            "a released key binds its fingerprint" => self.fingerprint = fingerprint,
            "a released nonce is forgotten" => drop(self.spent.remove(&self.nonce)),
            _ => {}
        }
    }
}
