//! Hooks, the store, keys, the order of layers.

use super::{assert_names_a_run, scenes, told};

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_asked_is_told_with_its_answer_or_its_panic() {
    let (log, ()) = told(scenes::reconciled()).await;
    let answered = log.of("a hook has answered");
    let answers: Vec<_> = answered.iter().map(|told| told.field("answer")).collect();
    assert_eq!(answers, ["run-again", "done", "unknown", "not-yet"]);
    assert_eq!(log.of("a hook is asked").len(), 5);
    for told in log.of("a hook") {
        assert_eq!(told.field("hook"), "reconcile");
        assert_names_a_run(&told);
    }
    assert_eq!(log.one("a hook panicked").level, "ERROR");

    let (log, ()) = told(scenes::existing()).await;
    let answered = log.of("a hook has answered");
    let answers: Vec<_> = answered.iter().map(|told| told.field("answer")).collect();
    assert_eq!(answers, ["answer", "none"]);
    assert_eq!(log.of("a hook is asked").len(), 3);
    for told in log.of("a hook") {
        assert_eq!(told.field("hook"), "on_unique_violation");
        assert_names_a_run(&told);
    }
    assert_eq!(log.one("a hook panicked").level, "ERROR");

    let (log, ()) = told(scenes::rendered()).await;
    let panicked = log.one("a hook panicked");
    assert_eq!(panicked.field("hook"), "on_not_kept");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_told_of_and_so_is_each_of_its_calls() {
    let (log, ()) = told(scenes::store_down()).await;
    let failed = log.one("no answer: the store failed");
    assert_eq!(
        (&*failed.level, &*failed.target),
        ("WARN", "tower_idempotency::store")
    );
    assert!(
        failed
            .field("error")
            .starts_with("the store is unavailable: ")
    );
    let calls = log.of("the store was called");
    assert!(!calls.is_empty());
    for call in calls {
        assert_eq!((&*call.level, call.field("call")), ("TRACE", "claim"));
        assert_eq!((call.field("ok"), call.field("layer")), ("false", "orders"));
        assert!(call.field("micros").parse::<u64>().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_response_that_cannot_be_read_is_told() {
    let (log, ()) = told(scenes::unreadable()).await;
    let told = log.one("a kept response cannot be read");
    assert_eq!((&*told.level, told.field("key").len()), ("ERROR", 8));
    assert!(told.field("error").contains("key ring"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_weak_key_is_told_once_by_its_route() {
    let (log, ()) = told(scenes::weak_key()).await;
    let told = log.one("a client's business key is not likely to name an intent");
    assert_eq!(
        (&*told.level, &*told.target),
        ("WARN", "tower_idempotency::key")
    );
    assert_eq!(told.field("path"), "/orders");
    assert_eq!(told.field("weakness"), "timestamp");
}

#[tokio::test(start_paused = true)]
async fn a_misorder_is_told_once_by_its_layer() {
    let (log, ()) = told(scenes::misorder()).await;
    let told = log.one("the layer for CORS stands inside");
    assert_eq!((&*told.level, told.field("layer")), ("WARN", "orders"));
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_panics_says_so_and_goes_on() {
    let (log, ()) = told(scenes::keeper_panics()).await;
    let told = log.one("the keeper's worker panicked");
    assert_eq!(
        (&*told.level, &*told.target),
        ("ERROR", "tower_claim::keeper")
    );
    assert_eq!(log.of("a claim was lost").len(), 0);
}
