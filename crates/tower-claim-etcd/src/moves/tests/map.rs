//! Etcd, as a map whose keys end with their leases. Every record goes through its bytes.

use std::collections::HashMap;
use std::time::Duration;

use tower_claim::{Nonce, Token};

use super::super::{Plan, Seen, Sibling, Step, Write};
use super::secs_of;
use crate::bytes::{decode, encode, id};
use crate::record::Kept;

/// A value, and the lease it lies on.
pub(super) struct Lying<T>(T, i64);

/// Etcd, as far as one key goes.
#[derive(Default)]
pub(super) struct Etcd {
    pub(super) now: u64,
    /// Each lease, and when it ends.
    pub(super) leases: HashMap<i64, u64>,
    pub(super) record: Option<Lying<Vec<u8>>>,
    pub(super) siblings: Vec<(Sibling, Lying<u64>)>,
    pub(super) spent: Vec<(Nonce, i64)>,
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

    pub(super) fn seen(&self, nonce: Option<Nonce>) -> Seen {
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
    pub(super) fn apply(&mut self, nonce: Option<Nonce>, plan: Plan) -> Token {
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

    pub(super) fn step<T>(&mut self, nonce: Option<Nonce>, step: Step<T>) -> T {
        match step {
            Step::Answer(answer) => answer,
            Step::Change(plan, done) => done(self.apply(nonce, plan)),
        }
    }

    pub(super) fn left(&self, lease: i64) -> Duration {
        let end = self.leases.get(&lease).copied().unwrap_or(0);
        secs_of(end.saturating_sub(self.now))
    }
}
