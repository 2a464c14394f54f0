//! The moves against the reference: the same calls at the same seconds are answered alike.
//!
//! Etcd is a map here whose keys end with their leases, and every record goes through its bytes. Where the
//! two may differ, the comparison says why.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use tower_claim::engine::{self, At};
use tower_claim::store::{
    Beat, Broken, ClaimRequest, Claimed, FinishRequest, LostReason, Marked, Owner, ReleaseRequest,
    Renewed, Resolution, Resolved, StoreTime, Value, Watched,
};
use tower_claim::{Fingerprint, LapsePolicy, Nonce, Settings, Token};

use super::*;
use crate::bytes::{decode, encode, id};
use crate::record::Kept;

const KEY: tower_claim::Key = tower_claim::Key::from_bytes([7; 32]);

fn secs_of(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn time(seconds: u64) -> StoreTime {
    StoreTime::default().saturating_add(secs_of(seconds))
}

/// A value, and the lease it lies on.
struct Lying<T>(T, i64);

/// Etcd, as far as one key goes.
#[derive(Default)]
struct Etcd {
    now: u64,
    /// Each lease, and when it ends.
    leases: HashMap<i64, u64>,
    record: Option<Lying<Vec<u8>>>,
    siblings: Vec<(Sibling, Lying<u64>)>,
    spent: Vec<(Nonce, i64)>,
}

impl Etcd {
    fn lives(&self, lease: i64) -> bool {
        lease == 0 || self.leases.get(&lease).is_some_and(|end| *end > self.now)
    }

    fn sibling(&self, sought: Sibling) -> Option<&Lying<u64>> {
        let mut all = self.siblings.iter();
        let found = all.find(|(sibling, Lying(_, lease))| *sibling == sought && self.lives(*lease));
        found.map(|(_, lying)| lying)
    }

    fn seen(&self, nonce: Option<Nonce>) -> Seen {
        let record = self.record.as_ref().filter(|lying| self.lives(lying.1));
        let value = |sibling| self.sibling(sibling).map(|lying| lying.0);
        Seen {
            record: record.map(|Lying(bytes, lease)| Kept {
                record: decode(bytes, 0).expect("what was written is read"),
                revision: 1,
                lease: *lease,
            }),
            live: self.sibling(Sibling::Live).map(|lying| lying.1),
            cool: value(Sibling::Cool),
            wait: value(Sibling::Wait),
            floor: value(Sibling::Floor).map(|token| (Token::new(token).expect("a token"), 1)),
            spent: self
                .spent
                .iter()
                .any(|(spent, lease)| Some(*spent) == nonce && self.lives(*lease)),
            // Below every token: so the floor and the last token alone decide, as in the reference.
            revision: 0,
        }
    }

    /// The token that it makes.
    fn apply(&mut self, nonce: Option<Nonce>, plan: Plan) -> Token {
        let mut ids = Vec::new();
        for secs in &plan.grants {
            let id = i64::try_from(self.leases.len() + 1).expect("few");
            self.leases.insert(id, self.now + secs);
            ids.push(id);
        }
        for write in plan.writes {
            match write {
                Write::Record(record, lease) => {
                    self.record = Some(Lying(encode(&record, &ids), id(lease, &ids)));
                }
                Write::Forget => self.record = None,
                Write::Put(sibling, value, lease) => {
                    self.siblings.retain(|(other, _)| *other != sibling);
                    let lying = Lying(value, id(lease, &ids));
                    self.siblings.push((sibling, lying));
                }
                Write::Delete(sibling) => self.siblings.retain(|(other, _)| *other != sibling),
                Write::Spend(lease) => {
                    self.spent
                        .push((nonce.expect("the asker's"), id(lease, &ids)));
                }
            }
        }
        for lease in plan.revokes {
            self.leases.insert(lease, 0);
        }
        plan.token.unwrap_or(Token::ZERO)
    }

    fn step<T>(&mut self, nonce: Option<Nonce>, step: Step<T>) -> T {
        match step {
            Step::Answer(answer) => answer,
            Step::Change(plan, done) => done(self.apply(nonce, plan)),
        }
    }

    fn left(&self, lease: i64) -> Duration {
        let end = self.leases.get(&lease).copied().unwrap_or(0);
        secs_of(end.saturating_sub(self.now))
    }
}

/// One of the terms that claims are made under.
#[derive(Debug, Clone)]
struct Terms {
    lease: u64,
    cooling: u64,
    min_hold: u64,
    unfinished: u64,
    hold: bool,
}

impl Terms {
    fn settings(&self) -> Settings {
        let mut settings = Settings::new(secs_of(self.lease));
        settings.cooling = secs_of(self.cooling);
        settings.min_hold = secs_of(self.min_hold);
        settings.unfinished_keep = secs_of(self.unfinished);
        settings.on_lapse = match self.hold {
            true => LapsePolicy::Hold,
            false => LapsePolicy::TakeOver,
        };
        settings
    }
}

/// A call. `who` counts back from the last claim that was made.
#[derive(Debug, Clone)]
enum Move {
    Wait(u64),
    Claim {
        print: bool,
        terms: Terms,
        floor: u64,
        rest: u64,
    },
    Again {
        who: usize,
    },
    Renew {
        who: usize,
        progress: u64,
    },
    Mark {
        who: usize,
    },
    Finish {
        who: usize,
        keep: u64,
        tombstone: bool,
    },
    Release {
        who: usize,
        by_token: bool,
    },
    /// Of a nonce whose claim has not arrived.
    ReleaseStranger {
        rest: u64,
    },
    Resolve {
        who: usize,
        done: Option<u64>,
    },
    AskRevoke {
        who: usize,
    },
    Break {
        who: usize,
    },
    Watch {
        who: usize,
    },
}

/// One claim, as its owner knows it.
#[derive(Clone)]
struct Made {
    owner: Owner,
    print: Option<Fingerprint>,
    settings: Settings,
    not_after: u64,
}

struct World {
    etcd: Etcd,
    reference: engine::Record,
    made: Vec<Made>,
    told_until: u64,
}

impl World {
    fn new() -> Self {
        Self {
            etcd: Etcd {
                now: 1,
                ..Etcd::default()
            },
            reference: engine::Record::vacant(),
            made: Vec::new(),
            told_until: 0,
        }
    }

    fn at(&self) -> At {
        At {
            now: time(self.etcd.now),
            unix_ms: 0,
        }
    }

    fn ms(&self) -> u64 {
        self.etcd.now * 1000
    }

    fn who(&self, back: usize) -> Option<Made> {
        let nth = self.made.len().checked_sub(1 + back)?;
        self.made.get(nth).cloned()
    }

    fn nonce(&self) -> Nonce {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(self.made.len() as u64 + 1).to_be_bytes());
        Nonce::from_bytes(bytes)
    }

    /// No record is left in etcd, and the reference keeps a free one: it remembers its token.
    fn is_forgotten(&self) -> bool {
        self.etcd.seen(None).record.is_none()
    }

    fn claim(&mut self, mut made: Made, floor: Token) -> Result<(), TestCaseError> {
        let request = ClaimRequest {
            key: KEY,
            nonce: made.owner.nonce,
            fingerprint: made.print,
            settings: &made.settings,
            floor,
            not_after: time(made.not_after),
        };
        let at = self.at();
        let expected = self
            .reference
            .claim(&request, at, |terms| terms.clone().into());
        let expected = expected.expect("a token is left");
        let answer = if at.now > request.not_after {
            Claimed::TooLate
        } else {
            let seen = self.etcd.seen(Some(request.nonce));
            let mut ask = Ask::of(&request, 0, 1);
            ask.spent_secs = made.not_after - self.etcd.now + ask.lease_secs() + 5;
            let step = claim(&seen, &ask, self.ms()).expect("a token is left");
            match (self.etcd.step(Some(request.nonce), step), seen.live) {
                (
                    Claimed::Mine {
                        token,
                        rest,
                        attempt,
                    },
                    Some(lease),
                ) => Claimed::Mine {
                    token,
                    rest: rest.min(self.etcd.left(lease)),
                    attempt,
                },
                (answer, _) => answer,
            }
        };
        prop_assert_eq!(&answer, &expected, "claim");
        if let Claimed::Granted(grant) = answer {
            made.owner.token = grant.token;
            // Of the owner before nothing is told any more.
            self.told_until = 0;
        }
        let nonce = made.owner.nonce;
        match self.made.iter_mut().find(|one| one.owner.nonce == nonce) {
            Some(known) => *known = made,
            None => self.made.push(made),
        }
        Ok(())
    }

    /// Where the record is gone, nobody knows any more who ended the hold.
    fn same_loss(&self, answer: LostReason, expected: LostReason) -> Result<(), TestCaseError> {
        let told = self.etcd.now < self.told_until;
        let gone = answer == LostReason::Superseded && expected == LostReason::Broken;
        if !(gone && self.is_forgotten() && !told) {
            prop_assert_eq!(answer, expected, "lost");
        }
        Ok(())
    }

    fn run(&mut self, step: Move) -> Result<(), TestCaseError> {
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

    /// Of the last holder, and of the claim `who` before.
    fn expected(&self, who: usize) -> Option<Token> {
        match who {
            0 => Some(self.reference.stamp().0),
            who => self.who(who - 1).map(|made| made.owner.token),
        }
    }

    fn release(
        &mut self,
        nonce: Nonce,
        token: Option<Token>,
        not_after: u64,
    ) -> Result<(), TestCaseError> {
        let request = ReleaseRequest {
            key: KEY,
            nonce,
            token,
            not_after: time(not_after),
        };
        let spent_secs = not_after.saturating_sub(self.etcd.now) + 65;
        let step = release(
            &self.etcd.seen(Some(nonce)),
            &request,
            spent_secs,
            self.ms(),
        );
        let answer = self.etcd.step(Some(nonce), step);
        let expected = self.reference.release(&request, self.at());
        prop_assert_eq!(answer, expected, "release");
        Ok(())
    }

    /// What people see: all of a record that is not free.
    fn looks_the_same(&self) -> Result<(), TestCaseError> {
        let free = tower_claim::store::State::Free;
        let expected = self.reference.peek(KEY, self.at());
        match self.etcd.seen(None).peek(KEY, self.ms()) {
            Some(view) if view.state != free => prop_assert_eq!(view, expected, "peek"),
            _ => prop_assert_eq!(expected.state, free, "peek"),
        }
        Ok(())
    }
}

fn terms() -> impl Strategy<Value = Terms> {
    let parts = (
        1..8_u64,
        prop_oneof![Just(0), 1..6_u64],
        prop_oneof![Just(0), 1..12_u64],
        prop_oneof![Just(0_u64), 1..20_u64, Just(4000)],
        any::<bool>(),
    );
    parts.prop_map(|(lease, cooling, min_hold, unfinished, hold)| Terms {
        lease,
        cooling,
        min_hold,
        unfinished,
        hold,
    })
}

fn moves() -> impl Strategy<Value = Move> {
    let who = || 0..3_usize;
    let wait = prop_oneof![6 => 1..5_u64, 2 => 5..30_u64, 1 => Just(90), 1 => Just(5000)];
    let claim = (any::<bool>(), terms(), 0..40_u64, 0..6_u64);
    prop_oneof![
        6 => wait.prop_map(Move::Wait),
        6 => claim.prop_map(|(print, terms, floor, rest)| Move::Claim { print, terms, floor, rest }),
        2 => who().prop_map(|who| Move::Again { who }),
        4 => (who(), 0..9_u64).prop_map(|(who, progress)| Move::Renew { who, progress }),
        2 => who().prop_map(|who| Move::Mark { who }),
        2 => (who(), 0..20_u64, any::<bool>())
            .prop_map(|(who, keep, tombstone)| Move::Finish { who, keep, tombstone }),
        2 => (who(), any::<bool>()).prop_map(|(who, by_token)| Move::Release { who, by_token }),
        1 => (0..6_u64).prop_map(|rest| Move::ReleaseStranger { rest }),
        2 => (who(), prop::option::of(0..20_u64))
            .prop_map(|(who, done)| Move::Resolve { who, done }),
        1 => who().prop_map(|who| Move::AskRevoke { who }),
        2 => who().prop_map(|who| Move::Break { who }),
        2 => who().prop_map(|who| Move::Watch { who }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_sequence_of_moves_is_answered_as_the_reference_answers_it(
        all in prop::collection::vec(moves(), 1..40),
    ) {
        let mut world = World::new();
        for one in all {
            world.run(one)?;
        }
    }
}

#[test]
fn a_watched_hold_that_was_never_there_has_ended() {
    assert_eq!(Seen::default().watch(Token::MAX, 0), Ok(Watched::Ended));
}
