//! Heartbeats, many in one go: look, keep the etcd leases alive, write the beats.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse};
use futures_util::future::join_all;
use tower_claim::StoreError;
use tower_claim::store::{Beat, LostReason, Renewed};

use crate::bytes::{encode, id};
use crate::calls::Deadline;
use crate::moves;
use crate::plan::{On, Plan, Sibling, Write};
use crate::record::Seen;
use crate::store::{Inner, is, unix_ms};

/// Beats of one transaction: etcd takes 128 operations by default, nested ones counted.
const AT_ONCE: usize = 100;
/// A beat that meets a change of its record (a mark, a wish to stop) looks again.
const ROUNDS: usize = 3;

/// A beat whose hold stands, as far as was read.
struct Standing<'a> {
    nth: usize,
    beat: &'a Beat,
    seen: Seen,
    plan: Plan,
}

impl Inner {
    pub(crate) async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        let mut answers = Vec::with_capacity(beats.len());
        let deadline = self.calls.deadline();
        for some in beats.chunks(AT_ONCE) {
            match self.renew_some(deadline, some).await {
                Ok(more) => answers.extend(more),
                Err(error) if answers.is_empty() => return Err(error),
                // The earlier ones were applied: of these nothing is known.
                Err(_) => answers.extend(some.iter().map(|_| Renewed::Unsure)),
            }
        }
        Ok(answers)
    }

    async fn renew_some(
        &self,
        deadline: Deadline,
        beats: &[Beat],
    ) -> Result<Vec<Renewed>, StoreError> {
        let mut answers = vec![Renewed::Unsure; beats.len()];
        let mut open: Vec<usize> = (0..beats.len()).collect();
        for _ in 0..ROUNDS {
            if open.is_empty() {
                break;
            }
            let keys: Vec<_> = open
                .iter()
                .map(|nth| (beats[*nth].owner.key, None))
                .collect();
            let all = self.look(deadline, &keys).await?;
            let mut standing = Vec::new();
            for (nth, seen) in open.drain(..).zip(all) {
                let beat = &beats[nth];
                match moves::renew(&seen, beat, unix_ms()) {
                    Ok(plan) => standing.push(Standing {
                        nth,
                        beat,
                        seen,
                        plan,
                    }),
                    Err(reason) => answers[nth] = Renewed::Lost(reason),
                }
            }
            let kept = join_all(standing.iter().map(|one| self.keep_alive(deadline, one))).await;
            let mut failed = None;
            let mut alive = Vec::new();
            for (one, kept) in standing.into_iter().zip(kept) {
                match kept {
                    Ok(true) => alive.push(one),
                    // A moment ago it stood: broken, finished or lapsed since, the record tells.
                    Ok(false) => {
                        answers[one.nth] = Renewed::Lost(LostReason::Lapsed);
                        open.push(one.nth);
                    }
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                Some(error) if alive.is_empty() && open.is_empty() => {
                    let known = answers.iter().any(|answer| *answer != Renewed::Unsure);
                    return if known { Ok(answers) } else { Err(error) };
                }
                _ => {}
            }
            self.write_beats(deadline, alive, &mut answers, &mut open)
                .await?;
        }
        Ok(answers)
    }

    /// The keep and the cooling first: they outlive the hold.
    async fn keep_alive(&self, deadline: Deadline, one: &Standing<'_>) -> Result<bool, StoreError> {
        let Some(kept) = &one.seen.record else {
            return Ok(false);
        };
        let leases = kept.record.leases;
        let ids: Vec<i64> = [leases.keep, leases.cool, leases.live]
            .into_iter()
            .filter(|lease| *lease != On::Nothing)
            .map(|lease| id(lease, &[]))
            .collect();
        self.calls.keep_alive(deadline, &ids).await
    }

    /// One transaction of many, each with its own conditions: so one that lost a race spoils no other.
    async fn write_beats(
        &self,
        deadline: Deadline,
        alive: Vec<Standing<'_>>,
        answers: &mut [Renewed],
        open: &mut Vec<usize>,
    ) -> Result<(), StoreError> {
        if alive.is_empty() {
            return Ok(());
        }
        let nested = alive.iter().map(|one| {
            let key = &one.beat.owner.key;
            let path = self.keys.record(key);
            let revision = one.seen.record.as_ref().map_or(0, |kept| kept.revision);
            let mut ops = Vec::new();
            for write in &one.plan.writes {
                if let Write::Record(record, lease) = write {
                    let on = PutOptions::new().with_lease(id(*lease, &[]));
                    ops.push(TxnOp::put(path.clone(), encode(record, &[]), Some(on)));
                }
            }
            let pins = [
                Compare::mod_revision(path, CompareOp::Equal, revision),
                is(self.keys.sibling(key, Sibling::Live), true),
            ];
            TxnOp::txn(Txn::new().when(pins).and_then(ops))
        });
        let txn = Txn::new().and_then(nested.collect::<Vec<_>>());
        let answer = self.calls.write(deadline, txn).await?;
        for (one, written) in alive.into_iter().zip(answer.op_responses()) {
            let Some(kept) = &one.seen.record else {
                continue;
            };
            match written {
                TxnOpResponse::Txn(txn) if txn.succeeded() => {
                    answers[one.nth] = Renewed::Renewed {
                        rest: Duration::from_secs(kept.record.lease_secs),
                        revoke_asked: kept.record.revoke_asked,
                    };
                }
                _ => {
                    answers[one.nth] = Renewed::Unsure;
                    open.push(one.nth);
                }
            }
        }
        Ok(())
    }
}
