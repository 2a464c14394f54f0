//! Heartbeats, many in one go: look, grant the leases that all of them share, move the holds onto these.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};
use futures_util::future::join_all;
use tower_claim::StoreError;
use tower_claim::store::{Beat, LostReason, Renewed};

use crate::calls::Deadline;
use crate::moves;
use crate::plan::Sibling;
use crate::record::Seen;
use crate::store::{Inner, unix_ms};
use crate::write::{Pending, is};

/// Beats of one transaction: etcd takes 128 operations by default, nested ones counted.
const AT_ONCE: usize = 100;
/// A beat that meets a change of its record (a mark, a wish to stop) looks again.
const ROUNDS: usize = 3;

/// A beat whose hold stands, as far as was read.
struct Standing<'a> {
    nth: usize,
    pending: Pending<'a>,
}

impl Inner {
    pub(crate) async fn renew(&self, beats: &[Beat]) -> Result<Vec<Renewed>, StoreError> {
        let deadline = self.calls.deadline();
        let (once, nth) = merged(beats);
        let batches = once
            .chunks(AT_ONCE)
            .map(async |some| (some.len(), self.renew_some(deadline, some).await));
        let batches = join_all(batches).await;
        let none = batches.iter().all(|(_, answers)| answers.is_err());
        let mut answers = Vec::with_capacity(once.len());
        for (len, some) in batches {
            match some {
                Ok(some) => answers.extend(some),
                Err(error) if none => return Err(error),
                // Others were applied: of these nothing is known.
                Err(_) => answers.extend(std::iter::repeat_n(Renewed::Unsure, len)),
            }
        }
        Ok(nth.into_iter().map(|nth| answers[nth].clone()).collect())
    }

    async fn renew_some(
        &self,
        deadline: Deadline,
        beats: &[Beat],
    ) -> Result<Vec<Renewed>, StoreError> {
        let mut answers = vec![Renewed::Unsure; beats.len()];
        let mut open: Vec<usize> = (0..beats.len()).collect();
        for _ in 0..ROUNDS {
            let keys: Vec<_> = open
                .iter()
                .map(|nth| (beats[*nth].owner.key, None))
                .collect();
            let all = self.look(deadline, &keys).await?;
            let mut later = Vec::new();
            let mut standing = Vec::new();
            for (nth, seen) in open.drain(..).zip(&all) {
                let seen = match seen {
                    Ok(seen) => seen,
                    Err(_) if beats.len() > 1 => continue,
                    // One record that cannot be read must not take its neighbours along.
                    Err(_) => {
                        return all
                            .into_iter()
                            .collect::<Result<Vec<Seen>, _>>()
                            .map(|_| answers);
                    }
                };
                let beat = &beats[nth];
                match moves::renew(seen, beat, unix_ms()) {
                    Ok(plan) => standing.push(Standing {
                        nth,
                        pending: Pending {
                            key: beat.owner.key,
                            nonce: None,
                            seen,
                            plan,
                        },
                    }),
                    Err(reason) => answers[nth] = Renewed::Lost(reason),
                }
            }
            self.move_on(deadline, standing, &mut answers, &mut later)
                .await?;
            if later.is_empty() {
                break;
            }
            open = later;
        }
        Ok(answers)
    }

    /// New leases for all, and the keeps that are kept alive: they outlive the hold, so they come before it.
    async fn move_on(
        &self,
        deadline: Deadline,
        standing: Vec<Standing<'_>>,
        answers: &mut [Renewed],
        later: &mut Vec<usize>,
    ) -> Result<(), StoreError> {
        let spans = standing.iter().flat_map(|one| &one.pending.plan.grants);
        let mut leases: BTreeMap<u64, i64> = spans.map(|secs| (*secs, 0)).collect();
        let spans: Vec<u64> = leases.keys().copied().collect();
        let keeps = standing.iter().map(async |one| match one.own_keep() {
            Some(id) => self.calls.keep_alive(deadline, id).await,
            None => Ok(true),
        });
        let (granted, keeps) = tokio::join!(self.calls.grant(deadline, &spans), join_all(keeps));
        for (id, granted) in leases.values_mut().zip(granted?) {
            *id = granted.id();
        }
        let mut failed = None;
        let mut alive = Vec::with_capacity(standing.len());
        for (one, kept) in standing.into_iter().zip(keeps) {
            match kept {
                Ok(true) => alive.push(one),
                // A moment ago it stood: broken, finished or lapsed since, the record tells.
                Ok(false) => {
                    answers[one.nth] = Renewed::Lost(LostReason::Lapsed);
                    later.push(one.nth);
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if answers.len() == 1 => Err(error),
            _ if alive.is_empty() => Ok(()),
            _ => {
                self.write_beats(deadline, alive, &leases, answers, later)
                    .await
            }
        }
    }

    /// One transaction of many, each with its own conditions: so one that lost a race spoils no other.
    async fn write_beats(
        &self,
        deadline: Deadline,
        alive: Vec<Standing<'_>>,
        leases: &BTreeMap<u64, i64>,
        answers: &mut [Renewed],
        later: &mut Vec<usize>,
    ) -> Result<(), StoreError> {
        let nested = alive.iter().map(|one| {
            let Pending {
                key, seen, plan, ..
            } = &one.pending;
            let revision = seen.record.as_ref().map_or(0, |kept| kept.revision);
            let pins = [
                Compare::mod_revision(self.keys.record(key), CompareOp::Equal, revision),
                is(self.keys.sibling(key, Sibling::Live), true),
            ];
            let ids = plan.grants.iter().map(|secs| leases.get(secs).copied());
            let ids: Vec<i64> = ids.map(Option::unwrap_or_default).collect();
            let mut ops = Vec::new();
            self.puts(&one.pending, &ids, &mut ops);
            TxnOp::txn(Txn::new().when(pins).and_then(ops))
        });
        let txn = Txn::new().and_then(nested.collect::<Vec<_>>());
        let answer = self.calls.write(deadline, txn).await?;
        let mut revokes = Vec::new();
        for (one, written) in alive.into_iter().zip(answer.op_responses()) {
            let Pending { seen, plan, .. } = one.pending;
            let Some(kept) = &seen.record else {
                continue;
            };
            match written {
                TxnOpResponse::Txn(txn) if txn.succeeded() => {
                    revokes.extend(plan.revokes);
                    answers[one.nth] = Renewed::Renewed {
                        rest: Duration::from_secs(kept.record.lease_secs),
                        revoke_asked: kept.record.revoke_asked,
                    };
                }
                _ => {
                    answers[one.nth] = Renewed::Unsure;
                    later.push(one.nth);
                }
            }
        }
        self.give_back(revokes);
        Ok(())
    }
}

/// Each owner once, with the furthest progress, and of which of these each beat is: etcd refuses a transaction
/// that puts a key twice, and beats of one owner in several would race each other without end.
fn merged(beats: &[Beat]) -> (Vec<Beat>, Vec<usize>) {
    let mut once: Vec<Beat> = Vec::with_capacity(beats.len());
    let mut places = HashMap::with_capacity(beats.len());
    let nth = beats.iter().map(|beat| {
        let place = *places.entry(beat.owner).or_insert(once.len());
        match once.get_mut(place) {
            Some(met) => met.progress = met.progress.max(beat.progress),
            None => once.push(*beat),
        }
        place
    });
    let nth = nth.collect();
    (once, nth)
}

impl Standing<'_> {
    fn own_keep(&self) -> Option<i64> {
        let kept = self.pending.seen.record.as_ref()?;
        moves::keep_of_its_own(&kept.record)
    }
}
