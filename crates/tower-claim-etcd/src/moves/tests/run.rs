//! One call after the other, made to both.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use tower_claim::engine;
use tower_claim::store::{
    Beat, Broken, FinishRequest, Marked, Owner, Purged, Renewed, Resolution, Resolved, Value,
};
use tower_claim::{Fingerprint, Settings, Token};

use super::super::{
    ask_revoke, break_claim, finish, keep_of_its_own, mark, purge, renew, resolve, secs,
};
use super::world::{Made, Move, World};
use super::{KEY, secs_of};

impl World {
    pub(super) fn run(&mut self, step: Move) -> Result<(), TestCaseError> {
        let (at, ms) = (self.at(), self.ms());
        match step {
            Move::Wait(secs) => self.etcd.now += secs,
            Move::Claim {
                print,
                terms,
                floor,
                rest,
            } => {
                let made = Made {
                    owner: Owner {
                        key: KEY,
                        nonce: self.nonce(),
                        token: Token::ZERO,
                    },
                    print: print.then(|| Fingerprint::from_bytes([9; 32])),
                    settings: terms.settings(),
                    not_after: self.etcd.now + rest,
                };
                self.claim(made, Token::new(floor).expect("small"))?;
            }
            Move::Again { who } => {
                if let Some(made) = self.who(who) {
                    self.claim(made, Token::ZERO)?;
                }
            }
            Move::Renew { who, progress } => {
                let Some(Made { owner, .. }) = self.who(who) else {
                    return Ok(());
                };
                let beat = Beat { owner, progress };
                let seen = self.etcd.seen(None);
                let expected = self.reference.renew(&beat, at);
                match (renew(&seen, &beat, ms), expected) {
                    (Err(answer), Renewed::Lost(expected)) => self.same_loss(answer, expected)?,
                    (Ok(plan), expected) => {
                        let record = seen.record.expect("a hold").record;
                        if let Some(lease) = keep_of_its_own(&record) {
                            let span = record.lease_secs + secs(record.terms.unfinished_keep);
                            self.etcd.leases.insert(lease, self.etcd.now + span);
                        }
                        let answer = Renewed::Renewed {
                            rest: secs_of(record.lease_secs),
                            revoke_asked: record.revoke_asked,
                        };
                        self.etcd.apply(None, plan);
                        prop_assert_eq!(answer, expected, "renew");
                    }
                    (answer, expected) => {
                        return Err(TestCaseError::fail(format!(
                            "renew: {answer:?}, {expected:?}"
                        )));
                    }
                }
            }
            Move::Mark { who } => {
                let Some(Made { owner, .. }) = self.who(who) else {
                    return Ok(());
                };
                let step = mark(&self.etcd.seen(None), owner);
                let answer = self.etcd.step(None, step);
                match (answer, self.reference.mark(owner, at)) {
                    (Marked::Lost(answer), Marked::Lost(expected)) => {
                        self.same_loss(answer, expected)?;
                    }
                    (answer, expected) => prop_assert_eq!(answer, expected, "mark"),
                }
            }
            Move::Finish {
                who,
                keep,
                tombstone,
            } => {
                let Some(Made { owner, .. }) = self.who(who) else {
                    return Ok(());
                };
                let mut request = FinishRequest {
                    owner,
                    value: match tombstone {
                        true => Value::Tombstone,
                        false => Value::Kept(Bytes::from_static(b"result")),
                    },
                    keep: secs_of(keep),
                };
                let step = finish(&self.etcd.seen(None), &request, ms);
                let answer = self.etcd.step(None, step);
                let expected = self.reference.finish(&mut request, at);
                prop_assert_eq!(answer, expected, "finish");
            }
            Move::Release { who, by_token } => {
                if let Some(made) = self.who(who) {
                    let Owner { nonce, token, .. } = made.owner;
                    self.release(nonce, by_token.then_some(token), made.not_after)?;
                }
            }
            Move::ReleaseStranger { rest } => {
                let made = Made {
                    owner: Owner {
                        key: KEY,
                        nonce: self.nonce(),
                        token: Token::ZERO,
                    },
                    print: None,
                    settings: Settings::new(secs_of(3)),
                    not_after: self.etcd.now + rest,
                };
                self.release(made.owner.nonce, None, made.not_after)?;
                // Its claim may arrive now: `Again`.
                self.made.push(made);
            }
            Move::Resolve { who, done } => {
                let Some(token) = self.expected(who) else {
                    return Ok(());
                };
                let resolution = || match done {
                    Some(keep) => {
                        Resolution::Done(Value::Kept(Bytes::from_static(b"told")), secs_of(keep))
                    }
                    None => Resolution::Absent,
                };
                let step = resolve(&self.etcd.seen(None), token, &resolution(), ms);
                let answer = self.etcd.step(None, step.expect("a token is left"));
                let expected = self.reference.resolve(token, resolution(), at);
                let expected = expected.expect("a token is left");
                match answer {
                    // A free record has nothing to resolve, whether it is kept or not.
                    Resolved::Absent => prop_assert!(
                        !matches!(expected, Resolved::Resolved { .. }),
                        "{:?}",
                        expected
                    ),
                    answer => {
                        if let Resolved::Resolved { .. } = answer {
                            self.told_until = self.etcd.now + done.unwrap_or(60);
                        }
                        prop_assert_eq!(answer, expected, "resolve");
                    }
                }
            }
            Move::AskRevoke { who } => {
                let Some(token) = self.expected(who) else {
                    return Ok(());
                };
                let step = ask_revoke(&self.etcd.seen(None), token);
                let answer = self.etcd.step(None, step);
                prop_assert_eq!(answer, self.reference.ask_revoke(token, at), "ask_revoke");
            }
            Move::Break { who } => {
                let Some(token) = self.expected(who) else {
                    return Ok(());
                };
                let seen = self.etcd.seen(None);
                let record = seen.record.map(|kept| kept.record);
                // So long it is remembered that it was broken, at least.
                let told_secs = record.map_or(0, |record| match record.holds_on() {
                    true if record.terms.unfinished_keep > Duration::ZERO => {
                        secs(record.terms.unfinished_keep)
                    }
                    _ => 60.max(record.lease_secs),
                });
                let step = break_claim(&self.etcd.seen(None), token, ms);
                let answer = self.etcd.step(None, step.expect("a token is left"));
                let expected = self.reference.break_claim(token, at);
                match (answer, expected.expect("a token is left")) {
                    (Broken::Absent, expected) => {
                        prop_assert!(!matches!(expected, Broken::Broken { .. }), "{:?}", expected)
                    }
                    (answer, expected) => {
                        if let Broken::Broken { .. } = answer {
                            self.told_until = self.etcd.now + told_secs;
                        }
                        prop_assert_eq!(answer, expected, "break");
                    }
                }
            }
            Move::Purge { who } => {
                let Some(token) = self.expected(who) else {
                    return Ok(());
                };
                let step = purge(&self.etcd.seen(None), token, ms);
                let answer = self.etcd.step(None, step.expect("a token is left"));
                let expected = self.reference.purge(token, at);
                if let Purged::Purged { .. } = answer {
                    self.told_until = self.etcd.now + 60;
                }
                prop_assert_eq!(answer, expected.expect("a token is left"), "purge");
            }
            Move::Watch { who } => {
                let Some(token) = self.expected(who) else {
                    return Ok(());
                };
                let answer = self.etcd.seen(None).watch(token, ms);
                match (answer, self.reference.watch(token, at)) {
                    (Ok(answer), engine::Watching::Over(expected)) => {
                        prop_assert_eq!(answer, expected, "watch");
                    }
                    (Err(left), engine::Watching::Until(end)) => {
                        prop_assert_eq!(left, end.saturating_since(at.now), "watch");
                    }
                    (answer, expected) => {
                        return Err(TestCaseError::fail(format!(
                            "watch: {answer:?}, {expected:?}"
                        )));
                    }
                }
            }
        }
        self.looks_the_same()
    }
}
