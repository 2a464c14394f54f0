//! A finish inside the user's transaction: whatever becomes of the transaction and of the handle.

use super::*;
use crate::store::{Finish, FinishRequest, Owner, State, Value};
use crate::testing::{Fault, FaultStore, Operation};
use crate::{ClaimStore, LapsePolicy, MemoryStore};

/// A store whose records a transaction can lock: others who want to change one are refused meanwhile, and
/// beats cannot tell.
struct Bank {
    store: FaultStore<MemoryStore>,
    keeper: Keeper,
}

/// A user's transaction with a finish in it.
struct Transaction<'a> {
    bank: &'a Bank,
    finish: Option<FinishRequest>,
}

fn receipt() -> Value {
    Value::Kept("receipt 7".into())
}

impl Bank {
    fn open() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(crate::TokioClock::new());
        let store = MemoryStore::builder()
            .clock(Arc::clone(&clock))
            .build()
            .unwrap();
        let store = FaultStore::with_clock(store, Arc::clone(&clock));
        let keeper = Keeper::builder(store.clone())
            .clock(clock)
            .run_on(RunOn::Task)
            .build()
            .unwrap();
        Self { store, keeper }
    }

    /// `finish_in`: from here on the record is locked.
    async fn begin(&self, owner: Owner) -> (Transaction<'_>, Finish) {
        let record = self.store.inner().peek(owner.key).await.unwrap();
        let ours = record.is_some_and(|record| {
            record.token == owner.token && matches!(record.state, State::Held | State::Unknown)
        });
        let finish = ours.then(|| FinishRequest {
            owner,
            value: receipt(),
            keep: LEASE * 100,
        });
        let answer = if ours { Finish::Finished } else { Finish::Lost };
        for changes in [Operation::Claim, Operation::Renew, Operation::Release] {
            self.store.faults().set_for(changes, Fault::Down);
        }
        (Transaction { bank: self, finish }, answer)
    }

    async fn state(&self) -> State {
        let record = self.store.inner().peek(key("a")).await.unwrap();
        record.map_or(State::Free, |record| record.state)
    }

    /// How many calls of one kind were sent.
    fn sent(&self, operation: Operation) -> u64 {
        self.store.faults().calls().of(operation)
    }
}

impl Transaction<'_> {
    async fn commit(mut self) {
        self.bank.store.faults().set(Fault::Ok);
        if let Some(finish) = self.finish.take() {
            let done = self.bank.store.inner().finish(finish).await;
            assert_eq!(done.unwrap(), Finish::Finished);
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.bank.store.faults().set(Fault::Ok);
    }
}

fn hold_terms() -> Terms {
    Terms::builder(LEASE)
        .on_lapse(LapsePolicy::Hold)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_committed_finish_stands_and_costs_no_trip() {
    let bank = Bank::open();
    let held = claim(&bank.keeper, "a").await;
    let finishing = held.begin_finish().unwrap();
    let (tx, answer) = bank.begin(finishing.owner()).await;
    assert_eq!(answer, Finish::Finished);
    tx.commit().await;
    finishing.committed();
    drop(held);
    settled(&bank.keeper).await;
    assert_eq!(bank.state().await, State::Done);
    assert_eq!(bank.store.faults().calls().total(), 1, "the claim alone");
}

#[tokio::test(start_paused = true)]
async fn a_committed_finish_stands_whoever_forgets_to_say_so() {
    let bank = Bank::open();
    let held = claim(&bank.keeper, "a").await;
    let finishing = held.begin_finish().unwrap();
    let (tx, _) = bank.begin(finishing.owner()).await;
    tx.commit().await;
    drop((finishing, held));
    settled(&bank.keeper).await;
    assert_eq!(bank.sent(Operation::Release), 1);
    assert_eq!(bank.state().await, State::Done);
}

/// Its transaction ended without the finish, and its rows may be there.
#[tokio::test(start_paused = true)]
async fn an_abandoned_finish_sends_nothing_and_lapses() {
    let bank = Bank::open();
    let held = claim(&bank.keeper, "a").await;
    let finishing = held.begin_finish().unwrap();
    finishing.abandon();
    drop(held);
    settled(&bank.keeper).await;
    assert_eq!(bank.state().await, State::Held, "it has its lease");
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(bank.store.faults().calls().total(), 1, "the claim alone");
    let next = claim(&bank.keeper, "a").await;
    assert!(next.took_over().is_some(), "told of it");
}

#[tokio::test(start_paused = true)]
async fn a_rolled_back_claim_is_given_back_at_once() {
    let bank = Bank::open();
    let held = claim(&bank.keeper, "a").await;
    let finishing = held.begin_finish().unwrap();
    let (tx, _) = bank.begin(finishing.owner()).await;
    drop(tx);
    let rolled_back = tokio::time::Instant::now();
    drop((finishing, held));
    settled(&bank.keeper).await;
    assert!(rolled_back.elapsed() < LEASE / 10);
    let next = claim(&bank.keeper, "a").await;
    assert_eq!(next.attempt(), 1, "given back, not taken over");
}

#[tokio::test(start_paused = true)]
async fn a_handle_dropped_before_its_transaction_ends_waits_for_the_end() {
    for commits in [true, false] {
        let bank = Bank::open();
        let held = claim(&bank.keeper, "a").await;
        let finishing = held.begin_finish().unwrap();
        let (tx, _) = bank.begin(finishing.owner()).await;
        drop((finishing, held));
        tokio::time::sleep(LEASE / 2).await;
        assert!(bank.sent(Operation::Release) > 1, "tried while locked");
        assert_eq!(bank.state().await, State::Held);
        if commits {
            tx.commit().await;
        } else {
            drop(tx);
        }
        settled(&bank.keeper).await;
        let expected = if commits { State::Done } else { State::Free };
        assert_eq!(bank.state().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn no_beat_is_sent_once_the_finish_is_handed_out() {
    let bank = Bank::open();
    let held = claim(&bank.keeper, "a").await;
    let lost = tokio::spawn(held.lost());
    tokio::time::sleep(LEASE * 2).await;
    let finishing = held.begin_finish().unwrap();
    assert_eq!(held.check(), Err(Loss::Ended));
    assert_eq!(lost.await.unwrap(), Loss::Ended);
    let beats = bank.sent(Operation::Renew);
    assert!(beats > 2);
    let (tx, _) = bank.begin(finishing.owner()).await;
    tokio::time::sleep(LEASE * 3).await;
    assert_eq!(bank.sent(Operation::Renew), beats);
    tx.commit().await;
    finishing.committed();
    assert_eq!(bank.state().await, State::Done, "the token decides");
}

#[tokio::test(start_paused = true)]
async fn nobody_else_ends_a_claim_whose_finish_is_handed_out() {
    let bank = Bank::open();
    let held = claim(&bank.keeper, "a").await;
    let finishing = held.begin_finish().unwrap();
    let other = held.clone();
    assert!(other.begin_finish().is_err());
    let second = other.finish(Value::Tombstone, LEASE).await;
    assert!(matches!(second, Err(StoreError::Unsupported(_))));
    drop(other);
    assert_eq!(held.release().await.unwrap(), HandBack::Nothing);
    settled(&bank.keeper).await;
    assert_eq!(bank.state().await, State::Held);
    assert_eq!(bank.begin(finishing.owner()).await.1, Finish::Finished);
    drop(finishing);
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_not_finished_elsewhere() {
    let store = Scripted::new();
    let keeper = keeper(&store);
    let keys = [key("a"), key("b")];
    let Ok(AttemptMany::Granted(all)) = keeper.claim_many(&keys, &terms(), Token::ZERO).await
    else {
        panic!("not granted");
    };
    assert!(all.begin_finish().is_err());
    assert_eq!(all.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_superseded_owner_is_told_so_and_harms_nobody() {
    let bank = Bank::open();
    let late = claim(&bank.keeper, "a").await;
    let finishing = late.begin_finish().unwrap();
    tokio::time::sleep(LEASE).await;
    let next = claim(&bank.keeper, "a").await;
    let (tx, answer) = bank.begin(finishing.owner()).await;
    assert_eq!(answer, Finish::Lost);
    drop(tx);
    assert_eq!(finishing.in_doubt().await.unwrap(), Settled::RolledBack);
    assert_eq!(next.check(), Ok(()));
    assert!(is_busy(&bank.keeper, "a").await);
}

#[tokio::test(start_paused = true)]
async fn in_doubt_answers_when_the_transaction_is_over() {
    for commits in [true, false] {
        for answered in [true, false] {
            let bank = Bank::open();
            let held = claim(&bank.keeper, "a").await;
            let finishing = held.begin_finish().unwrap();
            let (tx, _) = bank.begin(finishing.owner()).await;
            let end = async {
                tokio::time::sleep(LEASE / 2).await;
                if commits {
                    tx.commit().await;
                } else {
                    drop(tx);
                }
                if !answered {
                    let once = Fault::LoseReply(1);
                    bank.store.faults().set_for(Operation::Release, once);
                }
            };
            let (settled, ()) = tokio::join!(finishing.in_doubt(), end);
            let expected = if commits {
                (Settled::Committed, State::Done)
            } else {
                (Settled::RolledBack, State::Free)
            };
            assert_eq!((settled.unwrap(), bank.state().await), expected);
            let debug = format!("{:?}", bank.keeper);
            assert!(debug.contains("jobs: 0"), "nothing is left to do: {debug}");
        }
    }
}

/// The next owner is told of this one, as this one was of the one before.
#[tokio::test(start_paused = true)]
async fn what_is_to_lapse_is_not_given_back() {
    for (commits, asks) in [(true, true), (true, false), (false, true), (false, false)] {
        let bank = Bank::open();
        let held = claim(&bank.keeper, "a").await;
        let finishing = held.begin_finish().unwrap().or_lapse();
        let (tx, _) = bank.begin(finishing.owner()).await;
        if commits {
            tx.commit().await;
        } else {
            drop(tx);
        }
        let (settled_as, state) = if commits {
            (Settled::Committed, State::Done)
        } else {
            (Settled::Unknown, State::Held)
        };
        if asks {
            assert_eq!(finishing.in_doubt().await.unwrap(), settled_as);
        } else {
            drop(finishing);
        }
        drop(held);
        settled(&bank.keeper).await;
        assert_eq!(bank.state().await, state);
        if !commits {
            tokio::time::sleep(LEASE).await;
            let next = claim(&bank.keeper, "a").await;
            assert!(next.took_over().is_some(), "asks: {asks}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_doubt_does_not_wait_for_ever() {
    let bank = Bank::open();
    let held = claim(&bank.keeper, "a").await;
    let finishing = held.begin_finish().unwrap();
    let (tx, _) = bank.begin(finishing.owner()).await;
    let asked = tokio::time::Instant::now();
    let error = finishing.in_doubt().await.unwrap_err();
    assert!(error.is_ambiguous());
    assert!(asked.elapsed() <= LEASE);
    // The keeper goes on, for one more.
    drop(tx);
    settled(&bank.keeper).await;
    assert_eq!(bank.state().await, State::Free);
}

#[tokio::test(start_paused = true)]
async fn in_doubt_dropped_at_any_await_is_seen_through() {
    for commits in [true, false] {
        let mut n = 1;
        loop {
            let bank = Bank::open();
            let held = claim(&bank.keeper, "a").await;
            let finishing = held.begin_finish().unwrap();
            let (tx, _) = bank.begin(finishing.owner()).await;
            let asked = {
                let mut doubt = pin!(until_await(n, finishing.in_doubt()));
                let early = tokio::time::timeout(LEASE / 3, &mut doubt).await;
                if commits {
                    tx.commit().await;
                } else {
                    drop(tx);
                }
                match early {
                    Ok(asked) => asked,
                    Err(_) => doubt.await,
                }
            };
            drop(held);
            settled(&bank.keeper).await;
            let expected = if commits { State::Done } else { State::Free };
            assert_eq!(bank.state().await, expected, "await {n}");
            if asked.is_some() {
                assert!(n > 2, "this future has awaits");
                break;
            }
            n += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn past_the_point_of_no_return_a_rolled_back_claim_is_unknown() {
    for asks in [true, false] {
        let bank = Bank::open();
        let held = claim(&bank.keeper, "a").await;
        held.point_of_no_return().await.unwrap();
        let finishing = held.begin_finish().unwrap();
        drop(bank.begin(finishing.owner()).await);
        if asks {
            assert_eq!(finishing.in_doubt().await.unwrap(), Settled::RolledBack);
        } else {
            drop(finishing);
        }
        settled(&bank.keeper).await;
        assert_eq!(bank.state().await, State::Unknown);
    }
}

#[tokio::test(start_paused = true)]
async fn under_hold_a_lapsed_claim_without_a_result_stays_in_doubt() {
    for commits in [true, false] {
        let bank = Bank::open();
        let held = claim_as(&bank.keeper, "a", &hold_terms()).await;
        let finishing = held.begin_finish().unwrap();
        tokio::time::sleep(LEASE * 2).await;
        let (tx, answer) = bank.begin(finishing.owner()).await;
        assert_eq!(answer, Finish::Finished, "nobody may take over");
        // An engine may judge by time alone, without waiting for the lock.
        bank.store.faults().set(Fault::Ok);
        let end = async {
            tokio::time::sleep(LEASE / 2).await;
            if commits {
                tx.commit().await;
            } else {
                drop(tx);
            }
        };
        let (settled, ()) = tokio::join!(finishing.in_doubt(), end);
        let expected = if commits {
            Settled::Committed
        } else {
            Settled::Unknown
        };
        assert_eq!(settled.unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_may_be_run_again_under_one_handle() {
    let bank = Bank::open();
    let held = claim(&bank.keeper, "a").await;
    let finishing = held.begin_finish().unwrap();
    for _serialization_failure in 0..2 {
        drop(bank.begin(Owner::from(&finishing)).await);
    }
    let (tx, answer) = bank.begin(Owner::from(&finishing)).await;
    assert_eq!(answer, Finish::Finished);
    tx.commit().await;
    finishing.committed();
    settled(&bank.keeper).await;
    assert_eq!(bank.state().await, State::Done);
}
