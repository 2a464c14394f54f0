//! Several keys.

use tower_claim::store::{
    ClaimManyRequest, ClaimRequest, Claimed, ClaimedMany, Grant, Release, ReleaseRequest, StoreTime,
};
use tower_claim::{ClaimMany, Key, Settings, StoreError, Token};

use super::claim::Judgement;
use super::{Records, Reference, State};

impl Records {
    fn look(&mut self, request: &ClaimManyRequest<'_>) -> Result<Vec<bool>, ClaimedMany> {
        let flaw = self.flaw;
        let mut takes_over = Vec::new();
        for key in request.keys {
            let mut one = single(request, *key, request.settings);
            if flaw == "several keys ignore not_after" {
                one.not_after = StoreTime::NEVER;
            }
            if flaw == "several keys ignore spent nonces" {
                self.get(*key).spent.remove(&request.nonce);
            }
            let by = match self.judge(&one) {
                Judgement::Grant => {
                    takes_over.push(false);
                    continue;
                }
                Judgement::TakeOver if flaw != "several keys never take over" => {
                    takes_over.push(true);
                    continue;
                }
                Judgement::TakeOver => Claimed::TooLate,
                Judgement::Answer(by) => by,
            };
            match (flaw, &by) {
                ("several keys again are granted", Claimed::Mine { .. })
                | ("several keys ignore done", Claimed::Done(_))
                | ("several keys ignore unknown", Claimed::Unknown(_))
                | ("several keys ignore cooling", Claimed::Cooling(_)) => takes_over.push(false),
                ("a held key is skipped", Claimed::Busy(_)) => takes_over.push(false),
                ("a refusal keeps what it took", _) => {
                    for (key, takes_over) in request.keys.iter().zip(takes_over) {
                        self.grant(&single(request, *key, request.settings), takes_over);
                    }
                    return Err(ClaimedMany::Refused { key: *key, by });
                }
                _ => return Err(ClaimedMany::Refused { key: *key, by }),
            }
        }
        Ok(takes_over)
    }

    fn take(&mut self, request: &ClaimManyRequest<'_>, takes_over: Vec<bool>) -> ClaimedMany {
        let flaw = self.flaw;
        let bare = Settings::new(request.settings.lease);
        let last = |records: &mut Records, key| records.get(key).token;
        let highest = request.keys.iter().map(|key| last(self, *key)).max();
        let mut grants = Vec::new();
        for (i, (key, takes_over)) in request.keys.iter().zip(takes_over).enumerate() {
            let settings = match i > 0 && flaw == "only the first record gets the terms" {
                true => &bare,
                false => request.settings,
            };
            let mut one = single(request, *key, settings);
            one.floor = one.floor.max(highest.unwrap_or(Token::ZERO));
            if flaw == "several keys ignore the floor" {
                one.floor = Token::ZERO;
            }
            if flaw == "each key gets its own token" {
                one.floor = request.floor;
            }
            if i > 0 && flaw == "several keys get the first only" {
                continue;
            }
            if flaw == "a held key is skipped" && self.get(*key).state == State::Held {
                continue;
            }
            grants.push(self.grant(&one, takes_over));
        }
        let first = grants.swap_remove(0);
        if flaw != "each key gets its own token" {
            for key in request.keys {
                let record = self.get(*key);
                if record.nonce == request.nonce {
                    record.token = first.token;
                }
            }
        }
        ClaimedMany::Granted(first)
    }
}

fn single<'a>(
    request: &ClaimManyRequest<'_>,
    key: Key,
    settings: &'a Settings,
) -> ClaimRequest<'a> {
    ClaimRequest {
        key,
        nonce: request.nonce,
        fingerprint: None,
        settings,
        floor: request.floor,
        not_after: request.not_after,
    }
}

fn repeats(keys: &[Key]) -> bool {
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// A grant of no keys.
fn nothing(request: &ClaimManyRequest<'_>) -> Grant {
    Grant {
        token: Token::next(request.floor, Token::ZERO, 1),
        lease: request.settings.lease,
        attempt: 1,
        took_over: None,
    }
}

impl ClaimMany for Reference {
    async fn claim_many(&self, request: ClaimManyRequest<'_>) -> Result<ClaimedMany, StoreError> {
        if request.keys.len() == 1 && self.breaks("one key is not several") {
            return Err(StoreError::Unsupported("one key as several"));
        }
        match (request.first_key(), self.flaw) {
            (Ok(_), _) => {}
            (Err(_), "no keys are granted") if request.keys.is_empty() => {
                return Ok(ClaimedMany::Granted(nothing(&request)));
            }
            (Err(_), "several keys may come in any order") if request.keys.len() > 1 => {}
            (Err(_), "a key may be repeated") if repeats(request.keys) => {}
            (Err(error), flaw) => {
                if flaw == "keys out of order are taken, then refused" {
                    for key in request.keys {
                        let one = single(&request, *key, request.settings);
                        self.records().claim(one)?;
                    }
                }
                return Err(error);
            }
        }
        let answer = if self.breaks("several keys are looked at, then taken") {
            let looked = self.records().look(&request);
            tokio::task::yield_now().await;
            looked.map_or_else(
                |no| no,
                |takes_over| self.records().take(&request, takes_over),
            )
        } else {
            let mut records = self.records();
            let looked = records.look(&request);
            looked.map_or_else(|no| no, |takes_over| records.take(&request, takes_over))
        };
        self.wake();
        Ok(answer)
    }

    async fn release_many(&self, requests: &[ReleaseRequest]) -> Result<Vec<Release>, StoreError> {
        if requests.is_empty() && self.breaks("a release of none is an error") {
            return Err(StoreError::Unsupported("no release"));
        }
        let mut records = self.records();
        let mut answers: Vec<_> = requests
            .iter()
            .enumerate()
            .map(|(i, request)| match self.flaw {
                "beyond eight keys none is given back" if i >= 8 => Release::Already,
                "many releases free the first only" if request.key != requests[0].key => {
                    Release::Released
                }
                _ => records.release(*request),
            })
            .collect();
        if self.breaks("many releases are answered in reverse") {
            answers.reverse();
        }
        drop(records);
        self.wake();
        Ok(answers)
    }
}
