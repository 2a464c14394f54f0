//! The operator's side.

use std::time::Duration;

use tower_claim::store::{Broken, Purged, Resolution, Resolved, ScanPage, Value};
use tower_claim::{ClaimAdmin, Key, StoreError, Token};

use super::{Records, Reference, State};

impl Records {
    fn scan(&mut self, from: Option<Key>, limit: usize) -> ScanPage {
        let flaw = self.flaw;
        let keys = self.map.keys().copied();
        let mut rest: Vec<_> = keys.filter(|key| Some(*key) >= from).collect();
        if flaw == "a scan shows held keys only" {
            rest.retain(|key| self.map[key].state == State::Held);
        }
        if flaw == "a scan ignores its limit" {
            let records = rest.iter().filter_map(|key| self.view(*key)).collect();
            return ScanPage {
                records,
                next: None,
            };
        }
        let next = rest.get(limit).copied();
        rest.truncate(limit);
        ScanPage {
            records: rest.iter().filter_map(|key| self.view(*key)).collect(),
            next: match flaw {
                "a scan shows the border twice" => next.and(rest.last().copied()),
                _ => next,
            },
        }
    }

    fn raised(&self, token: Token) -> Token {
        Token::next(token, Token::ZERO, self.unix.as_millis() as u64)
    }

    fn resolve(&mut self, key: Key, expected: Token, resolution: Resolution) -> Resolved {
        let (now, flaw) = (self.now, self.flaw);
        let raised = self.raised(expected);
        let Some(record) = self.find(key) else {
            return match flaw {
                "a resolve of nothing is resolved" => Resolved::Resolved { token: raised },
                _ => Resolved::Absent,
            };
        };
        let takes = match record.state {
            State::Unknown { .. } => true,
            State::Held => flaw == "a resolve takes a held key",
            State::Done { .. } => flaw == "a resolve takes a done key",
            State::Free => false,
        };
        if !takes || record.token != expected && flaw != "a resolve ignores the token" {
            return Resolved::Conflict {
                token: record.token,
            };
        }
        if flaw != "a resolve keeps the token" {
            record.token = raised;
        }
        let nonce = record.nonce;
        match resolution {
            _ if flaw == "a resolve changes nothing" => {}
            Resolution::Done(value, keep) if flaw != "a resolve to done frees" => {
                let until = match flaw {
                    "a resolve to done is kept for ever" => now + Duration::from_secs(1000),
                    _ => now + keep,
                };
                let until = until.max(record.not_before);
                record.become_now(State::Done { value, until }, now);
            }
            _ => {
                if flaw == "a resolve frees at once" {
                    record.not_before = now;
                }
                record.free(now);
            }
        }
        if flaw == "a resolve forgets the nonce" {
            record.spent.remove(&nonce);
        }
        let token = record.token;
        Resolved::Resolved { token }
    }

    fn ask_revoke(&mut self, key: Key, expected: Token) -> bool {
        let (now, flaw) = (self.now, self.flaw);
        let Some(record) = self.find(key) else {
            return false;
        };
        let token = record.token == expected || flaw == "a wish to stop ignores the token";
        let asked = token && record.state == State::Held && !record.lapsed(now);
        record.revoke_asked |= asked;
        asked
    }

    fn break_claim(&mut self, key: Key, expected: Token) -> Broken {
        let (now, flaw) = (self.now, self.flaw);
        let raised = self.raised(expected);
        let Some(record) = self.find(key) else {
            return match flaw {
                "a break of nothing is broken" => Broken::Broken { token: raised },
                _ => Broken::Absent,
            };
        };
        let takes = match record.state {
            State::Held => true,
            State::Unknown { .. } => flaw == "a break takes an unknown key",
            State::Done { .. } => flaw == "a break takes a done key",
            State::Free => false,
        };
        if !takes || record.token != expected && flaw != "a break ignores the token" {
            return Broken::Conflict {
                token: record.token,
            };
        }
        if flaw != "a break keeps the token" {
            record.token = raised;
        }
        let frees = record.marked && flaw == "a break frees a marked hold"
            || !record.marked && flaw == "a break frees Hold";
        let until = now + record.terms.unfinished_keep;
        let nonce = record.nonce;
        record.broken = flaw != "a break changes nothing";
        if record.broken {
            // The owner may be at work still: it cools as after a lapse.
            if flaw == "a break cools from the break" || now < record.end {
                record.end = now;
            }
            let cooled = match flaw {
                "a break does not cool" => now,
                _ => record.end + record.terms.cooling,
            };
            record.stay_taken(cooled, "break");
        }
        if !record.broken {
            // As it was.
        } else if record.holds() && !frees {
            let by_lapse = false;
            record.become_now(State::Unknown { by_lapse, until }, now);
        } else {
            record.free(now);
        }
        if flaw == "a break forgets the nonce" {
            record.spent.remove(&nonce);
        }
        let token = record.token;
        Broken::Broken { token }
    }

    fn purge(&mut self, key: Key, expected: Token) -> Purged {
        let (now, flaw) = (self.now, self.flaw);
        let raised = self.raised(expected);
        let Some(record) = self.find(key) else {
            return match flaw {
                "a purge of nothing is purged" => Purged::Purged { token: raised },
                _ => Purged::Absent,
            };
        };
        let token = record.token;
        let takes = match &record.state {
            State::Done { value, .. } => {
                *value != Value::Tombstone || flaw != "a purge takes no tombstone"
            }
            State::Held => match flaw {
                "a purge takes a held key" => true,
                "a purge takes a lapsed hold" => record.lapsed(now),
                "a purge takes the hold of a later token" => token > expected,
                _ => false,
            },
            State::Unknown { .. } => flaw == "a purge takes an unknown key",
            State::Free => match flaw {
                "a purge of a free key is a conflict" => false,
                "a purge takes what was done once" => return Purged::Purged { token: raised },
                _ => return Purged::Absent,
            },
        };
        let any_token = matches!(
            flaw,
            "a purge ignores the token" | "a purge takes the hold of a later token"
        );
        if !takes || token != expected && !any_token {
            return Purged::Conflict { token };
        }
        if flaw != "a purge keeps the token" {
            record.token = raised;
        }
        let token = record.token;
        if flaw == "a purge changes nothing" {
            return Purged::Purged { token };
        }
        let min_hold_end = record.granted + record.terms.min_hold;
        record.not_before = match flaw {
            "a purge frees at once" => now,
            "a purge begins the min_hold anew" => now + record.terms.min_hold,
            "a purge cools" => now + record.terms.cooling,
            _ => record.not_before.max(min_hold_end),
        };
        let fingerprint = record.fingerprint;
        record.free(now);
        let nonce = record.nonce;
        match flaw {
            "a purge keeps the fingerprint" => record.fingerprint = fingerprint,
            "a purge forgets the nonce" => drop(record.spent.remove(&nonce)),
            "a purge forgets the nonces before it" => record.spent.retain(|one, _| *one == nonce),
            _ => {}
        }
        Purged::Purged { token }
    }
}

impl ClaimAdmin for Reference {
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        Ok(self.records().scan(from, limit))
    }

    async fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        let answer = self.records().resolve(key, expected, resolution);
        self.wake();
        Ok(answer)
    }

    async fn ask_revoke(&self, key: Key, expected: Token) -> Result<bool, StoreError> {
        Ok(self.records().ask_revoke(key, expected))
    }

    async fn break_claim(&self, key: Key, expected: Token) -> Result<Broken, StoreError> {
        let answer = self.records().break_claim(key, expected);
        if !self.breaks("a break wakes nobody") {
            self.wake();
        }
        Ok(answer)
    }

    async fn purge(&self, key: Key, expected: Token) -> Result<Purged, StoreError> {
        let answer = self.records().purge(key, expected);
        self.wake();
        Ok(answer)
    }
}
