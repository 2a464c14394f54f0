//! Writing a plan: one transaction that demands that everything which was read is as it was.

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use tower_claim::store::StoreTime;
use tower_claim::{Clock, Key, Nonce, StoreError, SystemClock, Token};

use crate::bytes::{encode, id};
use crate::calls::{Deadline, revision};
use crate::moves::Step;
use crate::plan::{Plan, Sibling, Write};
use crate::record::Seen;
use crate::store::{Inner, unix_ms};

/// How often a change that lost a race is tried anew.
pub(crate) const TRIES: usize = 16;

/// A change of one key that waits to be written.
pub(crate) struct Pending<'a> {
    pub(crate) key: Key,
    pub(crate) nonce: Option<Nonce>,
    pub(crate) seen: &'a Seen,
    pub(crate) plan: Plan,
}

/// What became of an attempt to write.
pub(crate) enum Written {
    /// It was, under this token at least.
    Yes(Token),
    /// Something that was read has changed: read again.
    Raced,
    /// It was not sent: its `not_after` has passed.
    TooLate,
}

impl Inner {
    /// Reads, moves and writes, until what was read is what is changed.
    pub(crate) async fn change<T: 'static>(
        &self,
        key: Key,
        nonce: Option<Nonce>,
        step: impl Fn(&Seen, u64) -> Result<Step<T>, StoreError>,
    ) -> Result<T, StoreError> {
        let deadline = self.calls.deadline();
        for _ in 0..TRIES {
            let seen = self.look_at(deadline, key, nonce).await?;
            let (plan, done) = match step(&seen, unix_ms())? {
                Step::Answer(answer) => return Ok(answer),
                Step::Change(plan, done) => (plan, done),
            };
            let pending = Pending {
                key,
                nonce,
                seen: &seen,
                plan,
            };
            if let Written::Yes(token) = self.write(deadline, None, &[pending]).await? {
                return Ok(done(token));
            }
        }
        Err(too_busy())
    }

    /// Everything that is pending, or nothing. `claim`: its lease in seconds, and when it is too late.
    pub(crate) async fn write(
        &self,
        deadline: Deadline,
        claim: Option<(u64, StoreTime)>,
        all: &[Pending<'_>],
    ) -> Result<Written, StoreError> {
        let spans: Vec<u64> = all.iter().flat_map(|one| one.plan.grants.clone()).collect();
        let granted = self.calls.grant(deadline, &spans).await?;
        let ids: Vec<i64> = granted.iter().map(|lease| lease.id()).collect();
        if let Some((lease_secs, not_after)) = claim {
            let asked = spans.iter().zip(&granted);
            let short = asked.filter(|(asked, _)| **asked == lease_secs);
            let mut learnt = false;
            for (asked, lease) in short {
                learnt |= self.least.learn(*asked, lease.ttl());
            }
            if learnt {
                self.give_back(ids);
                return Ok(Written::Raced);
            }
            if self.now() > not_after {
                self.give_back(ids);
                return Ok(Written::TooLate);
            }
            for pending in all {
                if let Some(nonce) = pending.nonce {
                    self.doubts
                        .add(pending.key, nonce, lease_secs, SystemClock.now());
                }
            }
        }
        let (mut compares, mut ops, mut first) = (Vec::new(), Vec::new(), 0);
        for pending in all {
            let ids = &ids[first..];
            self.pin(pending, &mut compares);
            self.puts(pending, ids, &mut ops);
            first += pending.plan.grants.len();
        }
        let txn = Txn::new().when(compares).and_then(ops);
        let answer = self.calls.write(deadline, txn).await;
        if claim.is_some() && !answer.as_ref().is_err_and(StoreError::is_ambiguous) {
            for pending in all {
                if let Some(nonce) = pending.nonce {
                    self.doubts.settle(pending.key, nonce);
                }
            }
        }
        let answer = answer?;
        if !answer.succeeded() {
            self.give_back(ids);
            return Ok(Written::Raced);
        }
        let revokes = all.iter().flat_map(|pending| &pending.plan.revokes);
        self.give_back(revokes.copied().collect());
        let revision = u64::try_from(revision(&answer)).unwrap_or(0);
        let by_revision = Token::new(revision).unwrap_or(Token::MAX);
        let least = all.iter().filter_map(|pending| pending.plan.token).max();
        Ok(Written::Yes(by_revision.max(least.unwrap_or(Token::ZERO))))
    }

    /// All that was read of the key must be as it was.
    fn pin(&self, pending: &Pending<'_>, compares: &mut Vec<Compare>) {
        let Pending {
            key, nonce, seen, ..
        } = pending;
        let revision = seen.record.as_ref().map_or(0, |kept| kept.revision);
        let record = self.keys.record(key);
        compares.push(Compare::mod_revision(record, CompareOp::Equal, revision));
        let floor = self.keys.sibling(key, Sibling::Floor);
        let revision = seen.floor.map_or(0, |(_, revision)| revision);
        compares.push(Compare::mod_revision(floor, CompareOp::Equal, revision));
        let exists = [
            (Sibling::Live, seen.live.is_some()),
            (Sibling::Cool, seen.cool.is_some()),
            (Sibling::Wait, seen.wait.is_some()),
        ];
        for (sibling, is_there) in exists {
            compares.push(is(self.keys.sibling(key, sibling), is_there));
        }
        if let Some(nonce) = nonce {
            compares.push(is(self.keys.spent(key, nonce), seen.spent));
        }
    }

    pub(crate) fn puts(&self, pending: &Pending<'_>, ids: &[i64], ops: &mut Vec<TxnOp>) {
        let key = &pending.key;
        let on = |lease| match id(lease, ids) {
            0 => None,
            id => Some(PutOptions::new().with_lease(id)),
        };
        for write in &pending.plan.writes {
            match write {
                Write::Record(record, lease) => {
                    let bytes = encode(record, ids);
                    ops.push(TxnOp::put(self.keys.record(key), bytes, on(*lease)));
                }
                Write::Forget => ops.push(TxnOp::delete(self.keys.record(key), None)),
                Write::Put(sibling, number, lease) => {
                    let path = self.keys.sibling(key, *sibling);
                    ops.push(TxnOp::put(path, number.to_be_bytes(), on(*lease)));
                }
                Write::Delete(sibling) => {
                    ops.push(TxnOp::delete(self.keys.sibling(key, *sibling), None));
                }
                Write::Spend(lease) => {
                    if let Some(nonce) = &pending.nonce {
                        let path = self.keys.spent(key, nonce);
                        ops.push(TxnOp::put(path, Vec::new(), on(*lease)));
                    }
                }
            }
        }
    }

    /// Leases that carry nothing any more would end by themselves; some only after a day.
    pub(crate) fn give_back(&self, leases: Vec<i64>) {
        if !leases.is_empty() {
            let calls = self.calls.clone();
            tokio::spawn(async move { calls.revoke(leases).await });
        }
    }
}

/// Whether the key is there.
pub(crate) fn is(path: String, there: bool) -> Compare {
    let op = if there {
        CompareOp::Greater
    } else {
        CompareOp::Equal
    };
    Compare::create_revision(path, op, 0)
}

pub(crate) fn too_busy() -> StoreError {
    StoreError::unavailable("others changed the key each time before we could")
}
