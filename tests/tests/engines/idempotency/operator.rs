//! What an operator of one process does with the records of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tower_claim::Key;
use tower_claim::store::{Purged, Resolved};
use tower_idempotency::{Explanation, ListedState, Operator, Reconciled};

use super::on_each_engine;
use super::scene::{Answer, Engine, Process, Shop, all, ask};

on_each_engine!(
    records_are_listed_as_what_they_are,
    an_operator_of_another_process_resolves_in_the_place_of_a_hook,
    an_answer_that_is_purged_is_gone_for_every_process,
    a_purged_answer_behind_a_hook_is_run_again_by_one_of_two_processes,
);

/// Two processes whose hook says this, one after the other; and how often it was asked.
async fn two<E: Engine>(
    place: &E,
    shop: &Shop,
    says: fn(usize) -> Reconciled,
) -> ([Process<E>; 2], Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let process = async || {
        let (admin, asked) = (place.store().await, Arc::clone(&asked));
        Process::with(place, shop, |builder| {
            builder.reconcile(admin, move |_| {
                let before = asked.fetch_add(1, Ordering::SeqCst);
                std::future::ready(says(before))
            })
        })
        .await
    };
    ([process().await, process().await], asked)
}

fn never(_: usize) -> Reconciled {
    Reconciled::NotYet(Duration::from_secs(1))
}

fn booked(_: usize) -> Reconciled {
    Reconciled::Done(Response::new("booked".into()))
}

/// A run that is lost behind its mark.
async fn lose<E: Engine>(process: &Process<E>) {
    let lost = process.ask(&ask("k").does("commit&panic")).await;
    lost.assert_refused(500, "handler-panicked");
}

fn key_of(operator: &Operator) -> Key {
    let key = operator.key_of(&ask("k").request().into_parts().0);
    key.expect("the layer guards it")
}

async fn explain(operator: &Operator) -> Explanation {
    let explained = operator.explain(key_of(operator)).await;
    explained.expect("it is read")
}

async fn ask_both<E: Engine>(processes: &[Process<E>; 2]) -> Vec<Answer> {
    let mut asked = Vec::new();
    for process in processes {
        asked.extend(process.start_many(5, &ask("k")));
    }
    all(asked).await
}

async fn records_are_listed_as_what_they_are<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let ([one, other], _) = two(&place, &shop, never).await;
    let operator = other.layer.operator(place.store().await);
    one.ask(&ask("done")).await.assert_fresh(201);
    one.ask(&ask("failed").does("status=503")).await;
    lose(&one).await;
    let led = one.ask(&ask("k")).await;
    led.assert_refused(409, "outcome-unknown");
    let running = one.start(&ask("running").does("commit&wait"));
    shop.until_effects(4).await;
    super::scene::until("it is marked", async || {
        let page = operator.list(None).await.expect("a page");
        assert_eq!(page.next, None);
        page.records.iter().any(|record| record.marked)
    })
    .await;
    let mut states: Vec<_> = operator.list(None).await.expect("a page").records;
    states.retain(|record| {
        assert!(record.token > tower_claim::Token::ZERO, "{record}");
        match record.state {
            ListedState::Done => !record.marked,
            ListedState::Running => record.marked && record.attempt == 1,
            ListedState::LeadsOn { to_hook, .. } => to_hook && record.key == key_of(&operator),
            _ => panic!("{record}"),
        }
    });
    assert_eq!(states.len(), 3, "{states:?}");
    shop.let_go();
    let ran = running.await.expect("no panic");
    ran.assert_fresh(201);
}

async fn an_operator_of_another_process_resolves_in_the_place_of_a_hook<E: Engine>() {
    for way in ["with its answer", "as done", "to run again"] {
        let (place, shop) = (E::place().await, Shop::new());
        let (processes, asked) = two(&place, &shop, never).await;
        lose(&processes[0]).await;
        let not_yet = processes[0].ask(&ask("k")).await;
        not_yet.assert_refused(409, "outcome-unknown");
        assert_eq!(asked.load(Ordering::SeqCst), 1);

        let operator = processes[1].layer.operator(place.store().await);
        let mut page = operator.unknown(None).await.expect("a page");
        assert_eq!(page.outcomes.len(), 1, "{way}");
        let unknown = page.outcomes.remove(0);
        assert!(unknown.waits_for_hook && unknown.key == key_of(&operator));
        let by_hand = Response::new(Bytes::from("by hand"));
        let resolved = match way {
            "with its answer" => operator.resolve_with(&unknown, by_hand).await,
            "as done" => operator.resolve_done(&unknown).await,
            _ => operator.run_again(&unknown).await,
        };
        let resolved = resolved.expect("it is answered");
        assert!(
            matches!(resolved, Resolved::Resolved { token } if token > unknown.token),
            "{way}: {resolved:?}"
        );
        // Seen before that, it is not settled a second time.
        let again = operator.run_again(&unknown).await.expect("it is answered");
        assert!(
            matches!(again, Resolved::Conflict { .. }),
            "{way}: {again:?}"
        );

        let answers = ask_both(&processes).await;
        match way {
            "with its answer" => {
                for answer in answers {
                    assert!(answer.is_replay() && answer.body == "by hand", "{answer:?}");
                }
            }
            "as done" => answers.iter().for_each(|answer| {
                answer.assert_refused(409, "response-not-kept");
            }),
            _ => {
                let ran = answers.iter().filter(|a| a.status == 201 && !a.is_replay());
                assert_eq!(ran.count(), 1, "{answers:?}");
            }
        }
        let ran = 1 + usize::from(way == "to run again");
        assert_eq!(
            (shop.effects(), asked.load(Ordering::SeqCst)),
            (ran, 1),
            "{way}"
        );
        let explained = explain(&operator).await;
        assert!(matches!(explained, Explanation::Done { .. }), "{explained}");
    }
}

async fn an_answer_that_is_purged_is_gone_for_every_process<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let (processes, _) = two(&place, &shop, never).await;
    let first = processes[0].ask(&ask("k")).await;
    first.assert_fresh(201);
    processes[1].ask(&ask("k")).await.assert_replay_of(&first);

    let operator = processes[1].layer.operator(place.store().await);
    let Explanation::Done { seen, .. } = explain(&operator).await else {
        panic!("it is done");
    };
    let purged = operator.purge(seen).await.expect("it is answered");
    assert!(matches!(purged, Purged::Purged { token } if token > seen.token));
    for process in &processes {
        let operator = process.layer.operator(place.store().await);
        let explained = explain(&operator).await;
        assert!(matches!(explained, Explanation::NeverSeen), "{explained}");
    }
    let again = operator.purge(seen).await.expect("it is answered");
    assert_eq!(again, Purged::Absent);

    let answers = ask_both(&processes).await;
    let ran = answers.iter().filter(|a| a.status == 201 && !a.is_replay());
    assert_eq!((ran.count(), shop.effects()), (1, 2), "{answers:?}");
    // What was seen is not what is there now.
    let late = operator.purge(seen).await.expect("it is answered");
    assert!(matches!(late, Purged::Conflict { .. }), "{late:?}");
    assert!(processes[0].ask(&ask("k")).await.is_replay());
}

async fn a_purged_answer_behind_a_hook_is_run_again_by_one_of_two_processes<E: Engine>() {
    let (place, shop) = (E::place().await, Shop::new());
    let (processes, asked) = two(&place, &shop, booked).await;
    lose(&processes[0]).await;
    assert_eq!(processes[0].ask(&ask("k")).await.body, "booked");
    let operator = processes[1].layer.operator(place.store().await);
    let Explanation::Done { seen, .. } = explain(&operator).await else {
        panic!("it is done");
    };
    let purged = operator.purge(seen).await.expect("it is answered");
    assert!(matches!(purged, Purged::Purged { .. }), "{purged:?}");
    let explained = explain(&operator).await;
    assert!(matches!(explained, Explanation::NeverSeen), "{explained}");

    let answers = ask_both(&processes).await;
    let ran = answers.iter().filter(|a| a.status == 201 && !a.is_replay());
    assert_eq!(ran.count(), 1, "{answers:?}");
    assert_eq!((shop.effects(), asked.load(Ordering::SeqCst)), (2, 1));
    let Explanation::Done { seen, .. } = explain(&operator).await else {
        panic!("it is done again");
    };
    operator.purge(seen).await.expect("it is answered");
    let explained = explain(&operator).await;
    assert!(matches!(explained, Explanation::NeverSeen), "{explained}");
}
