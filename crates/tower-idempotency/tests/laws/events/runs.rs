//! What becomes of runs.

use super::{assert_names_a_run, assert_of_a_run, scenes, told};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn each_count_is_told_and_names_its_run() {
    let (log, ()) = told(scenes::everyday()).await;
    let counted: Vec<_> = log
        .of("counted")
        .into_iter()
        .map(|told| {
            assert_eq!(
                (told.level.as_str(), told.field("layer")),
                ("DEBUG", "orders")
            );
            if told.fields.contains_key("token") {
                assert_names_a_run(&told);
            }
            (
                told.field("outcome").to_owned(),
                told.fields.contains_key("key"),
            )
        })
        .collect();
    let counted: Vec<_> = counted
        .iter()
        .map(|(of, run)| (of.as_str(), *run))
        .collect();
    let expected = [
        ("runs", true),
        ("in_progress", false),
        ("kept", true),
        ("replays", false),
        ("key_reused", false),
        ("other_refusals", false),
    ];
    assert_eq!(counted, expected);
}

#[tokio::test(start_paused = true)]
async fn each_request_without_a_run_tells_its_key_and_how_it_was_answered() {
    let (log, ()) = told(scenes::everyday()).await;
    let key = log.of("counted")[0].field("key").to_owned();
    let answered: Vec<_> = log
        .of("answered without a run")
        .into_iter()
        .map(|told| {
            assert_eq!(told.level, "DEBUG");
            (
                told.field("status").to_owned(),
                told.field("key").to_owned(),
            )
        })
        .collect();
    let expected = [
        ("in-progress", &*key),
        ("replayed", &*key),
        ("key-reused", &*key),
        ("key-invalid", ""),
    ];
    let expected = expected.map(|(status, key)| (status.to_owned(), key.to_owned()));
    assert_eq!(answered, expected);
}

#[tokio::test(start_paused = true)]
async fn a_takeover_tells_of_whom_and_the_zombie_of_itself() {
    let (log, ()) = told(scenes::zombie()).await;
    let taken = assert_of_a_run(&log, "INFO", "a run has taken over");
    let lost = assert_of_a_run(&log, "WARN", "the outcome of a run was not accepted");
    assert_eq!(taken.field("key"), lost.field("key"));
    assert_eq!(taken.field("before"), lost.field("token"));
    assert_eq!(taken.field("attempt"), "2");
    assert_eq!(taken.field("before_began_ms"), "300");
    assert_eq!(taken.field("before_beat_ms"), "300");
    // The keeper had known before.
    let keeper = log.one("a claim was lost while its work goes on");
    assert_eq!(
        (&*keeper.level, &*keeper.target),
        ("WARN", "tower_claim::keeper")
    );
    assert_eq!(keeper.field("token"), lost.field("token"));
    assert_eq!(
        keeper.field("loss"),
        "the lease ran out while the store did not answer"
    );
    let unanswered = log.of("a heartbeat was not answered");
    assert!(!unanswered.is_empty());
    assert_eq!(unanswered[0].field("holds"), "1");
    assert_eq!(unanswered[0].field("error"), "the store is unavailable");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_told_and_behind_the_point_of_no_return_that_its_outcome_is_unknown() {
    let (log, ()) = told(scenes::panics()).await;
    let panics = log.of("a handler panicked");
    assert_eq!(panics.len(), 2);
    panics.iter().for_each(assert_names_a_run);
    assert!(panics.iter().all(|told| told.level == "ERROR"));
    let unknown = assert_of_a_run(&log, "WARN", "the outcome of a run is unknown");
    assert_eq!(unknown.field("token"), panics[1].field("token"));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_was_not_confirmed_is_told_and_how_that_ended() {
    let begin = "the store did not confirm an outcome";
    let late = told(scenes::late()).await;
    let never = told(scenes::never_home()).await;
    let lost = told(scenes::too_late()).await;
    for ((log, ()), level, end) in [
        (late, "INFO", "a result was brought home late"),
        (never, "ERROR", "a result was not brought home in time"),
        (lost, "WARN", "a result came too late"),
    ] {
        let begun = assert_of_a_run(&log, "WARN", begin);
        assert!(begun.field("error").contains("unavailable"), "{begun:?}");
        let ended = log.one(end);
        assert_eq!(
            (&*ended.level, &*ended.target),
            (level, "tower_claim::keeper")
        );
        assert_eq!(ended.field("token"), begun.field("token"));
        let ends = log.told().into_iter();
        let ends = ends.filter(|told| told.message.starts_with("a result"));
        assert_eq!(ends.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_not_committed_is_told_without_its_rows() {
    let (log, ()) = told(scenes::not_committed()).await;
    let told_of = assert_of_a_run(&log, "WARN", "a handler's transaction was not committed");
    assert_eq!(told_of.field("error"), "ERROR: duplicate key");
    let (log, ()) = told(scenes::transaction_left_behind()).await;
    let told_of = assert_of_a_run(&log, "ERROR", "a handler's transaction cannot be committed");
    assert!(told_of.field("error").contains("kept its transaction"));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_without_its_response_tells_why() {
    let (log, ()) = told(scenes::not_kept()).await;
    let without = log.of("an outcome is kept without its response");
    without.iter().for_each(assert_names_a_run);
    let why: Vec<_> = without.iter().map(|told| told.field("why")).collect();
    assert_eq!(why, ["by-rule", "quota", "unfit"]);
    let unfit = assert_of_a_run(&log, "ERROR", "a response could not be redacted or sealed");
    assert_eq!(unfit.field("token"), without[2].field("token"));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_down_with_its_runtime_is_told() {
    let (log, ()) = told(scenes::cut_off()).await;
    assert_of_a_run(&log, "WARN", "a run was cut off");
}

#[tokio::test(start_paused = true)]
async fn a_handler_without_a_claim_is_told() {
    let (log, ()) = told(scenes::unprotected()).await;
    let told = log.one("a handler runs without a claim");
    assert_eq!((&*told.level, told.field("layer")), ("WARN", "orders"));
    assert_eq!(told.field("key").len(), 8);
}

/// Its events are in the span of the caller, as the handler's own are; and no span of the layer's is between.
#[tokio::test(start_paused = true)]
async fn detached_work_is_in_the_span_of_its_caller() {
    use tracing::Instrument;

    let app = App::new();
    let layer = scenes::orders(&app).build().unwrap();
    let handler = tower::service_fn(
        async |_: http::Request<tower_idempotency::RequestBody<Body>>| {
            tokio::time::sleep(ms(100)).await;
            tracing::Span::current().record("user", "u7");
            tracing::info!(target: "tower_test", "from the handler");
            Ok::<_, std::io::Error>(http::Response::new(body_of("ok")))
        },
    );
    let service = tower::Layer::layer(&layer, tower::util::BoxCloneSyncService::new(handler));
    let (log, ()) = told(async {
        let span = tracing::info_span!("request", user = tracing::field::Empty);
        let ask = post("/orders").key("k");
        let call = async { ask.send(&service).await }.instrument(span);
        // The caller is gone before the handler is done.
        assert!(tokio::time::timeout(ms(10), call).await.is_err());
        assert!(layer.drain(ms(1000)).await);
    })
    .await;
    assert_eq!(log.one("from the handler").spans, ["request"]);
    assert!(
        log.text().contains("request{user=\"u7\"}"),
        "{}",
        log.text()
    );
    for told in log.of("counted") {
        assert_eq!(told.spans, ["request"], "{told:?}");
    }
}
