//! The kit can fail: each mistake is found by the case that names it, and a service without mistakes passes.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod flaw;
mod handler;
mod reading;
mod service;

use std::time::Duration;

use flaw::Flaw;
use idempotency_kit::{Report, Settings, Verdict, examine};
use service::{Plan, start};

async fn report(plan: Plan, change: impl FnOnce(&mut Settings)) -> Report {
    let address = start(plan).await;
    let mut settings = Settings::new(&format!("http://{address}")).unwrap();
    settings.lab = true;
    change(&mut settings);
    examine(&settings).await.unwrap()
}

/// The numbers of the cases that were not judged.
fn skipped(report: &Report) -> Vec<&str> {
    report.skipped().map(|case| case.number).collect()
}

macro_rules! each_mistake_is_found {
    ($($law:ident: $flaw:ident by $case:literal;)*) => {
        $(
            #[tokio::test]
            async fn $law() {
                found(Flaw::$flaw, $case).await;
            }
        )*
    };
}

async fn found(flaw: Flaw, case: &str) {
    for (flaw, red) in [(None, false), (Some(flaw), true)] {
        let plan = Plan {
            flaw,
            waits: (case == "14").then_some(Duration::from_secs(2)),
            outer_timeout: (case == "16d").then_some(Duration::from_millis(300)),
            ..Plan::default()
        };
        let report = report(plan, |settings| {
            settings.waits = plan.waits;
            settings.times_out = plan.outer_timeout;
            settings.only = vec![case.to_owned()];
            // Long enough to be no luck, where a key stays busy for ever.
            if red {
                settings.lease = Duration::from_secs(3);
            }
        });
        let report = report.await;
        let verdict = &report.cases[0].verdict;
        match red {
            true => assert!(matches!(verdict, Verdict::Fail(_)), "{flaw:?}: {report}"),
            false => assert!(matches!(verdict, Verdict::Pass(_)), "{report}"),
        }
    }
}

each_mistake_is_found! {
    two_runs_at_once: RunsTwiceAtOnce by "4";
    no_lock_at_all: LocksNothing by "4";
    no_lock_for_the_loser: LocksNothing by "6";
    two_answers_at_once: RunsTwiceAtOnce by "6";
    a_loser_that_breaks: BreaksForTheLoser by "6";
    a_mismatch_behind_a_409: HidesMismatchBehindBusy by "8";
    replays_that_exclude_each_other: RefusesReplaysAtOnce by "9";
    a_wait_that_is_one_nap: NapsOnce by "14";
    a_run_that_stops_with_its_caller: StopsWithTheCaller by "16";
    a_claim_before_the_upload: ClaimsBeforeTheUpload by "16a";
    an_answer_kept_at_its_end_only: KeepsAtTheEndOnly by "16b";
    a_run_that_stops_with_its_stream: StopsWithTheCaller by "16c";
    a_run_that_a_timeout_stops: StopsWithTheCaller by "16d";
    a_key_that_stays_busy_after_a_panic: StaysBusyAfterPanic by "18";
    a_scope_that_is_missing: ForgetsTheCaller by "22";
    an_endpoint_that_is_not_compared: ForgetsTheEndpoint by "23";
    a_replay_before_authentication: ReplaysWithoutAuth by "25";
    a_nonce_check_outside: ChecksNoncesOutside by "27";
    odd_keys_that_bypass_the_layer: SkipsOddKeys by "29";
    two_keys_of_which_one_is_taken: TakesTheFirstOfTwoKeys by "29";
    long_keys_that_are_cut: CutsLongKeys by "29";
    quotes_that_make_another_key: TakesQuotesForTheKey by "29";
    a_get_that_occupies_the_key: ReplaysSafeMethods by "30";
    bodies_that_are_not_compared: ComparesNoBody by "31";
    empty_bodies_that_are_objects: TakesEmptyForAnEmptyObject by "31";
    chunked_bodies_that_are_not_compared: SkipsBodiesWithoutLength by "32";
    an_outcome_under_another_key: KeepsUnderAnotherKey by "34";
    numbers_that_blur: BlursNumbers by "35";
    a_content_type_that_is_not_compared: ForgetsContentType by "36";
    a_201_that_becomes_200: RepliesOk by "39";
    a_location_that_is_lost: DropsLocation by "39";
    cookies_that_are_replayed: ReplaysCookies by "40";
    a_second_link_that_is_lost: DropsTheSecondLine by "41";
    a_raw_header_that_is_lost: DropsRawHeaders by "41";
    a_large_response_that_is_forgotten: ForgetsLargeResponses by "43";
    a_failure_that_is_pinned: KeepsFailures by "46";
    a_mark_that_is_forgotten: ForgetsTheMark by "46";
    a_rejection_that_is_pinned: KeepsRejections by "47";
}

#[tokio::test]
async fn a_flag_that_the_service_does_not_know_is_no_failure() {
    for (unknown, case) in [("nolen", "16b"), ("nolen", "43"), ("delay", "4")] {
        let plan = Plan {
            unknown: Some(unknown),
            ..Plan::default()
        };
        let report = report(plan, |settings| settings.only = vec![case.to_owned()]).await;
        let verdict = &report.cases[0].verdict;
        assert!(
            matches!(verdict, Verdict::Skip(why) if why.contains(unknown)),
            "{report}"
        );
    }
}

#[tokio::test]
async fn an_answer_without_an_end_is_given_up() {
    let plan = Plan {
        endless: true,
        ..Plan::default()
    };
    let settings = Settings::new(&format!("http://{}", start(plan).await)).unwrap();
    let error = examine(&settings).await.unwrap_err().to_string();
    assert!(error.contains("at most 16777216 bytes"), "{error}");
}

#[tokio::test]
async fn a_path_that_was_named_and_is_not_there_is_said() {
    let base = format!("http://{}", start(Plan::default()).await);
    for option in ["--second-post", "--nested"] {
        let mut settings = Settings::new(&base).unwrap();
        match option {
            "--nested" => settings.nested = Some(["/v1/orders".to_owned(), "/nope".to_owned()]),
            _ => settings.second_post = Some("/nope".to_owned()),
        }
        let error = examine(&settings).await.unwrap_err().to_string();
        assert!(error.contains(option) && error.contains("/nope"), "{error}");
    }
}

#[tokio::test]
async fn where_no_handler_is_held_nothing_is_claimed_of_a_race() {
    let report = report(Plan::default(), |settings| {
        settings.lab = false;
        settings.only = vec!["6".to_owned()];
    });
    let report = report.await.to_string();
    // A repeat that was refused met the run.
    let met = !report.contains(" 0 times 409");
    assert_ne!(
        met,
        report.contains("could not show that they met"),
        "{report}"
    );
}

#[tokio::test]
async fn a_right_service_passes() {
    let report = report(Plan::default(), |_| ()).await;
    assert!(report.passed(), "{report}");
    assert_eq!(skipped(&report), ["14", "16d"], "{report}");
}

#[tokio::test]
async fn a_right_service_passes_over_http2_while_repeats_wait() {
    let waits = Some(Duration::from_secs(3));
    let plan = Plan {
        waits,
        ..Plan::default()
    };
    let report = report(plan, |settings| {
        settings.waits = waits;
        settings.http2 = true;
    });
    let report = report.await;
    assert!(report.passed(), "{report}");
    assert_eq!(skipped(&report), ["16d"], "{report}");
}

#[tokio::test]
async fn a_service_that_misbehaves_for_nobody_is_judged_by_what_it_shows() {
    let report = report(Plan::default(), |settings| settings.lab = false).await;
    assert!(report.passed(), "{report}");
    let skipped = skipped(&report);
    assert!(skipped.len() < report.cases.len() / 2, "{report}");
    assert!(
        !skipped.contains(&"4") && !skipped.contains(&"39"),
        "{report}"
    );
}
