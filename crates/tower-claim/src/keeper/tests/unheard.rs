//! Claims that nobody hears of, where a takeover must not be forgotten.

use super::scripted::SleepyClock;
use super::*;
use crate::testing::{Fault, FaultStore, Operation};
use crate::{ClaimStore, MemoryStore};

type Store = FaultStore<MemoryStore>;

/// An owner has crashed, and its lease is over.
async fn crashed() -> (Store, Keeper) {
    let (store, keeper, _) = crashed_on_a_machine().await;
    (store, keeper)
}

async fn crashed_on_a_machine() -> (Store, Keeper, Arc<SleepyClock>) {
    let clock: Arc<dyn Clock> = Arc::new(crate::TokioClock::new());
    let machine = Scripted::new().clock;
    let memory = MemoryStore::builder().clock(Arc::clone(&clock));
    let store = FaultStore::with_clock(memory.build().unwrap(), clock);
    let keeper = Keeper::builder(store.clone()).clock(machine.clone());
    let keeper = keeper.run_on(RunOn::Task).build().unwrap();
    first(&keeper, &terms()).await.abandon();
    tokio::time::sleep(LEASE * 2).await;
    (store, keeper, machine)
}

fn lapsing() -> Terms {
    terms().lapse_unheard_takeovers()
}

async fn ask(keeper: &Keeper, print: u8, terms: &Terms) -> Result<Attempt, StoreError> {
    let print = Fingerprint::builder()
        .part(Some([print].as_slice()))
        .build();
    keeper
        .claim(key("a"), Some(print), terms, Token::ZERO)
        .await
}

async fn first(keeper: &Keeper, terms: &Terms) -> Claim {
    match ask(keeper, 1, terms).await {
        Ok(Attempt::Granted(claim)) => claim,
        other => panic!("not granted: {other:?}"),
    }
}

/// What the crashed one bound is bound still, and who comes next is told.
async fn assert_remembered(store: &Store, keeper: &Keeper, when: &str) {
    store.faults().set(Fault::Ok);
    settled(keeper).await;
    for _ in 0..2 {
        let other = ask(keeper, 2, &lapsing()).await.unwrap();
        let bound = matches!(&other, Attempt::Busy(busy) if !busy.same_fingerprint);
        assert!(bound, "{when}: another got {other:?}");
        tokio::time::sleep(LEASE * 2).await;
    }
    let next = first(keeper, &lapsing()).await;
    assert!(next.attempt() > 1, "{when}");
    assert!(next.took_over().is_some(), "{when}");
}

#[tokio::test(start_paused = true)]
async fn a_takeover_dropped_at_any_await_is_remembered() {
    let mut applied = 0;
    for fault in [Fault::LoseReply(2), Fault::Delay(LEASE / 40)] {
        for await_ in 1.. {
            let (store, keeper) = crashed().await;
            store.faults().set_for(Operation::Claim, fault);
            let terms = lapsing();
            let asked = until_await(await_, ask(&keeper, 1, &terms)).await;
            if asked.is_some() {
                break;
            }
            let record = store.inner().peek(key("a")).await.unwrap().unwrap();
            applied += usize::from(record.attempt > 1);
            assert_remembered(&store, &keeper, &format!("{fault:?}, await {await_}")).await;
        }
    }
    assert!(applied > 0, "none was granted before it was dropped");
}

#[tokio::test(start_paused = true)]
async fn a_takeover_whose_answers_are_lost_is_remembered() {
    let (store, keeper) = crashed().await;
    store
        .faults()
        .set_for(Operation::Claim, Fault::LoseReply(1000));
    let asked = ask(&keeper, 1, &lapsing()).await;
    assert!(
        matches!(&asked, Err(error) if error.is_ambiguous()),
        "{asked:?}"
    );
    assert_remembered(&store, &keeper, "no answer").await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_that_comes_too_late_to_be_of_use_is_remembered() {
    let (store, keeper, machine) = crashed_on_a_machine().await;
    let delay = LEASE / 40;
    store
        .faults()
        .set_for(Operation::Claim, Fault::Delay(delay));
    let asked = tokio::spawn({
        let keeper = keeper.clone();
        async move { ask(&keeper, 1, &lapsing()).await }
    });
    tokio::time::sleep(delay / 2).await;
    machine.sleep(LEASE);
    // The next nonce finds the key busy with the grant that is of no use.
    let asked = asked.await.unwrap();
    assert!(matches!(asked, Ok(Attempt::Busy(_))), "{asked:?}");
    assert_remembered(&store, &keeper, "late").await;
}

#[tokio::test(start_paused = true)]
async fn a_first_claim_that_nobody_hears_of_is_given_back_at_once() {
    let (store, keeper) = crashed().await;
    let over = first(&keeper, &terms()).await;
    over.release().await.unwrap();
    for await_ in 1.. {
        store
            .faults()
            .set_for(Operation::Claim, Fault::LoseReply(2));
        let terms = lapsing();
        let asked = until_await(await_, ask(&keeper, 1, &terms)).await;
        if asked.is_some() {
            break;
        }
        store.faults().set(Fault::Ok);
        let dropped = tokio::time::Instant::now();
        let next = loop {
            if let Ok(Attempt::Granted(claim)) = ask(&keeper, 2, &lapsing()).await {
                break claim;
            }
            tokio::time::sleep(MS).await;
        };
        assert!(dropped.elapsed() < LEASE / 4, "await {await_}");
        assert_eq!(next.attempt(), 1);
        next.release().await.unwrap();
    }
}

/// As it is without the terms for it: whoever comes next is told of nobody.
#[tokio::test(start_paused = true)]
async fn a_takeover_under_other_terms_is_given_back() {
    let (store, keeper) = crashed().await;
    store
        .faults()
        .set_for(Operation::Claim, Fault::LoseReply(1000));
    let _ = ask(&keeper, 1, &terms()).await;
    store.faults().set(Fault::Ok);
    settled(&keeper).await;
    let Ok(Attempt::Granted(next)) = ask(&keeper, 2, &terms()).await else {
        panic!("it is free");
    };
    assert_eq!(next.attempt(), 1);
}
