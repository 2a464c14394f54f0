//! The map and the reference side by side. Where the two may differ, the comparison says why.

use proptest::prelude::*;
use tower_claim::engine::{self, At};
use tower_claim::store::{ClaimRequest, Claimed, LostReason, Owner, ReleaseRequest};
use tower_claim::{Fingerprint, LapsePolicy, Nonce, Settings, Token};

use super::super::{Ask, claim, release};
use super::map::Etcd;
use super::{KEY, secs_of, time};

/// One of the terms that claims are made under.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) lease: u64,
    pub(super) cooling: u64,
    pub(super) min_hold: u64,
    pub(super) unfinished: u64,
    pub(super) hold: bool,
}

impl Terms {
    pub(super) fn settings(&self) -> Settings {
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
pub(super) enum Move {
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
    Purge {
        who: usize,
    },
    Watch {
        who: usize,
    },
}

/// One claim, as its owner knows it.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) owner: Owner,
    pub(super) print: Option<Fingerprint>,
    pub(super) settings: Settings,
    pub(super) not_after: u64,
}

pub(super) struct World {
    pub(super) etcd: Etcd,
    pub(super) reference: engine::Record,
    pub(super) made: Vec<Made>,
    pub(super) told_until: u64,
}

impl World {
    pub(super) fn new() -> Self {
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

    pub(super) fn at(&self) -> At {
        At {
            now: time(self.etcd.now),
            unix_ms: 0,
        }
    }

    pub(super) fn ms(&self) -> u64 {
        self.etcd.now * 1000
    }

    pub(super) fn who(&self, back: usize) -> Option<Made> {
        let nth = self.made.len().checked_sub(1 + back)?;
        self.made.get(nth).cloned()
    }

    pub(super) fn nonce(&self) -> Nonce {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(self.made.len() as u64 + 1).to_be_bytes());
        Nonce::from_bytes(bytes)
    }

    /// No record is left in etcd, and the reference keeps a free one: it remembers its token.
    pub(super) fn is_forgotten(&self) -> bool {
        self.etcd.seen(None).record.is_none()
    }

    pub(super) fn claim(&mut self, mut made: Made, floor: Token) -> Result<(), TestCaseError> {
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
    pub(super) fn same_loss(
        &self,
        answer: LostReason,
        expected: LostReason,
    ) -> Result<(), TestCaseError> {
        let told = self.etcd.now < self.told_until;
        let gone = answer == LostReason::Superseded && expected == LostReason::Broken;
        if !(gone && self.is_forgotten() && !told) {
            prop_assert_eq!(answer, expected, "lost");
        }
        Ok(())
    }

    /// Of the last holder, and of the claim `who` before.
    pub(super) fn expected(&self, who: usize) -> Option<Token> {
        match who {
            0 => Some(self.reference.stamp().0),
            who => self.who(who - 1).map(|made| made.owner.token),
        }
    }

    pub(super) fn release(
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
    pub(super) fn looks_the_same(&self) -> Result<(), TestCaseError> {
        let free = tower_claim::store::State::Free;
        let expected = self.reference.peek(KEY, self.at());
        match self.etcd.seen(None).peek(KEY, self.ms()) {
            Some(view) if view.state != free => prop_assert_eq!(view, expected, "peek"),
            _ => prop_assert_eq!(expected.state, free, "peek"),
        }
        Ok(())
    }
}
