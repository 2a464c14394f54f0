//! Races, leases, fencing: over stores that processes share.

use std::time::Duration;

use futures_util::future::join_all;
use system_tests::client::{Answer, until};
use system_tests::programs::Lab;

use super::{counted, order, refusal, retry_after};
use crate::engines::{Engine, Own, Place};
use crate::idempotency::{record_of, resolve};
use crate::line::Line;
use crate::{effects, number, wait_live};

macro_rules! on_redis_and_postgres {
    ($($case:ident),* $(,)?) => {
        #[cfg(feature = "redis")]
        $crate::engines::on_engine!(redis Redis: $($case,)*);
        #[cfg(feature = "postgres")]
        $crate::engines::on_engine!(postgres Postgres: $($case,)*);
    };
}

on_redis_and_postgres!(
    case_1_a_record_without_a_lease_is_nobodys_orphan,
    case_3_a_late_owner_does_not_overwrite_its_successor,
    case_4_of_identical_posts_one_wins,
    case_5_a_lost_reply_does_not_make_a_request_its_own_rival,
    case_6_who_loses_the_race_is_told_so_and_no_store_has_failed,
    case_9_replays_at_once_are_replays_and_write_nothing,
    case_10_a_lease_ends_long_before_the_retention,
    case_12_a_lapse_under_hold_waits_for_the_operator,
    case_14_who_waits_holds_no_connection,
);

fn in_progress() -> (u16, String) {
    (409, "in-progress".to_owned())
}

async fn runs(lab: &Lab, ran: u64) {
    until("it runs", || effects(lab, "POST /orders"), |n| *n == ran).await;
}

async fn kill(mut lab: Lab) {
    lab.signal("KILL");
    assert!(lab.wait(Duration::from_secs(30)).is_some());
}

/// aws-powertools/powertools-lambda-typescript #5678, -python #8386
async fn case_1_a_record_without_a_lease_is_nobodys_orphan(on: Engine) {
    let server = Own::start(on);
    let place = server.place();
    let (a, b) = (place.lab(&["--lease", "10m"]), place.lab(&[]));
    let hanging = tokio::spawn(order(&a, "k").lab("hang").open());
    runs(&a, 1).await;
    kill(a).await;
    hanging.abort();

    server.take_lease_of(&record_of(&place, "k"));
    for _ in 0..2 {
        let busy = order(&b, "k").send().await;
        assert_eq!(refusal(&busy), in_progress());
    }
    assert_eq!(effects(&b, "POST /orders").await, 0);
    // One that lacks it altogether cannot be read, and is left to people.
    if server.take_end_of(&record_of(&place, "k")) {
        let garbled = order(&b, "k").send().await;
        assert_eq!(refusal(&garbled), super::unavailable());
        assert_eq!(garbled.json()["reason"], "record-unreadable");
        assert_eq!(effects(&b, "POST /orders").await, 0);
    }
}

/// Code of four libraries that complete whatever is "running".
async fn case_3_a_late_owner_does_not_overwrite_its_successor(on: Engine) {
    let place = on.place();
    let a = place.lab(&["--lease", "2s", "--renew", "off"]);
    let b = place.lab(&[]);
    let late = tokio::spawn(order(&a, "k").lab("delay=6000").send());
    runs(&a, 1).await;
    let ask = || order(&b, "k").lab("delay=12000").send();
    let successor = async { until("it takes over", ask, |answer| answer.status == 201).await };
    let meanwhile = async {
        runs(&b, 1).await;
        let late = late.await.expect("no panic");
        assert_eq!(
            refusal(&late),
            in_progress(),
            "it answers as a repeat would"
        );
        for lab in [&a, &b] {
            let busy = order(lab, "k").send().await;
            assert_eq!(refusal(&busy), in_progress(), "its successor runs still");
        }
    };
    let (successor, ()) = tokio::join!(successor, meanwhile);
    assert_eq!(number(&successor, "pid"), u64::from(b.pid()));
    for lab in [&a, &b] {
        let again = order(lab, "k").send().await;
        assert!(again.replayed());
        assert_eq!(again.body, successor.body);
    }
    assert_eq!(counted(&a, "superseded").await, 1);
}

/// Fifty posts of one key over two processes: their answers.
async fn fifty(place: &Place) -> ([Lab; 2], Vec<Answer>) {
    let labs = [place.lab(&[]), place.lab(&[])];
    let calls = (0..50).map(|n| {
        let call = order(&labs[n % 2], "k").body("the same");
        tokio::spawn(call.lab("delay=200").send())
    });
    let answers = join_all(calls).await;
    let answers = answers.into_iter().map(|a| a.expect("no panic")).collect();
    (labs, answers)
}

/// paveg/hono-idempotency #91
async fn case_4_of_identical_posts_one_wins(on: Engine) {
    let (labs, answers) = fifty(&on.place()).await;
    let fresh = |answer: &&Answer| answer.status == 201 && !answer.replayed();
    assert_eq!(answers.iter().filter(fresh).count(), 1);
    let ran = join_all(labs.iter().map(|lab| effects(lab, "POST /orders"))).await;
    assert_eq!(ran.iter().sum::<u64>(), 1);
}

/// idempot-dev/idempot-js #185
async fn case_5_a_lost_reply_does_not_make_a_request_its_own_rival(on: Engine) {
    let line = Line::to(on);
    let lab = line.lab(&[]);
    assert_eq!(order(&lab, "warm").send().await.status, 201);
    // The claim is among the first few things that are sent; which one depends on the connection.
    for before in 0..4 {
        let key = format!("k{before}");
        line.relay().cut_after(before);
        let ask = || order(&lab, &key).send();
        let first = until("it runs", ask, |answer| {
            answer.status == 201 || {
                assert_eq!(answer.status, 503, "its own rival: {answer:?}");
                false
            }
        })
        .await;
        line.relay().call_off();
        let again = until("it is kept", ask, Answer::replayed).await;
        assert_eq!(again.body, first.body);
        assert_eq!(effects(&lab, "POST /orders").await, before as u64 + 2);
    }
}

/// idempot-dev/idempot-js #181 and #186, alphagov/pay-connector #4460, apache/fineract #3933
async fn case_6_who_loses_the_race_is_told_so_and_no_store_has_failed(on: Engine) {
    let (labs, answers) = fifty(&on.place()).await;
    for answer in answers {
        if answer.status != 201 {
            assert_eq!(refusal(&answer), in_progress());
            retry_after(&answer);
        }
    }
    for lab in &labs {
        assert_eq!(counted(lab, "store_failures").await, 0);
        assert_eq!(counted(lab, "unconfirmed").await, 0);
    }
}

/// julik/idempo took its lock before it looked.
async fn case_9_replays_at_once_are_replays_and_write_nothing(on: Engine) {
    let server = Own::still(on);
    let lab = server.place().lab(&[]);
    let first = order(&lab, "k").send().await;
    assert_eq!(first.status, 201);
    // The first reader of a page may set hints in it.
    assert!(order(&lab, "k").send().await.replayed());
    let before = server.written();
    let calls = (0..50).map(|_| tokio::spawn(order(&lab, "k").send()));
    for again in join_all(calls).await {
        let again = again.expect("no panic");
        assert!(again.replayed(), "{again:?}");
        assert_eq!(again.body, first.body);
    }
    assert_eq!(server.written(), before, "replays were written down");
    assert_eq!(effects(&lab, "POST /orders").await, 1);
    assert_eq!(order(&lab, "k2").send().await.status, 201);
    assert_ne!(
        server.written(),
        before,
        "nothing is ever seen to be written"
    );
}

/// pathosDev/actor-ts #984, VilledeMontreal/express-idempotency #32
async fn case_10_a_lease_ends_long_before_the_retention(on: Engine) {
    let place = on.place();
    let options = &["--lease", "3s", "--retention", "1h"];
    let (a, b) = (place.lab(options), place.lab(options));
    let hanging = tokio::spawn(order(&a, "k").lab("hang").open());
    runs(&a, 1).await;
    kill(a).await;
    hanging.abort();
    // `until` waits for half a minute, not for an hour.
    let ask = || order(&b, "k").send();
    let after = until("it runs again", ask, |answer| {
        answer.status == 201 || {
            assert_eq!(refusal(answer), in_progress());
            assert!(
                (1..=3).contains(&retry_after(answer)),
                "what is left of the lease"
            );
            false
        }
    })
    .await;
    assert!(after.json()["took_over"].is_u64(), "{after:?}");
    assert!(order(&b, "k").send().await.replayed());
    assert_eq!(effects(&b, "POST /orders").await, 1);
}

/// aws-powertools/powertools-lambda-python #8049
async fn case_12_a_lapse_under_hold_waits_for_the_operator(on: Engine) {
    let place = on.place();
    let options = &["--lease", "3s", "--on-lapse", "hold"];
    let told = r#"{"status": 201, "headers": {"location": "/orders/7"}, "body": "seven"}"#;
    let b = place.lab(options);
    for (n, (verdict, said)) in [("done", told), ("done", ""), ("absent", "")]
        .into_iter()
        .enumerate()
    {
        let (a, key) = (place.lab(options), format!("k{n}"));
        let hanging = tokio::spawn(order(&a, &key).lab("hang").open());
        runs(&a, 1).await;
        kill(a).await;
        hanging.abort();
        let ask = || order(&b, &key).send();
        let lapsed = |answer: &Answer| refusal(answer) != in_progress();
        let unknown = until("it lapses", ask, lapsed).await;
        let is_unknown = (409, "outcome-unknown".to_owned());
        assert_eq!(refusal(&unknown), is_unknown);
        assert_eq!(refusal(&order(&b, &key).send().await), is_unknown);
        assert_eq!(effects(&b, "POST /orders").await, 0);

        let record = record_of(&place, &key);
        let resolved = resolve(&b, &record, verdict).body(said).send().await;
        assert_eq!(resolved.status, 204, "{resolved:?}");
        let after = order(&b, &key).send().await;
        if verdict == "absent" {
            assert_eq!((after.status.as_u16(), after.replayed()), (201, false));
            assert_eq!(effects(&b, "POST /orders").await, 1);
        } else if said.is_empty() {
            assert_eq!(refusal(&after), (409, "response-not-kept".to_owned()));
        } else {
            assert_eq!((after.status.as_u16(), after.replayed()), (201, true));
            assert_eq!(after.headers["location"], "/orders/7");
            assert_eq!(after.body, "seven");
        }
        let late = resolve(&b, &record, "absent").send().await;
        assert_eq!(late.status, 409, "it is not unknown any more: {late:?}");
    }
}

/// KanishJebaMathewM/Truxify #4696
async fn case_14_who_waits_holds_no_connection(on: Engine) {
    let server = Own::start(on);
    let place = server.place();
    let lab = place.lab(&["--on-busy", "wait:10m"]);
    let running = tokio::spawn(order(&lab, "k").lab("hang").open());
    runs(&lab, 1).await;
    let few: Vec<_> = (0..2)
        .map(|_| tokio::spawn(order(&lab, "k").send()))
        .collect();
    wait_live(&lab, "/orders", 3).await;
    let with_two = server.connections();
    let many: Vec<_> = (0..98)
        .map(|_| tokio::spawn(order(&lab, "k").send()))
        .collect();
    wait_live(&lab, "/orders", 101).await;
    let with_hundred = server.connections();
    let beside = order(&lab, "other").send().await;
    assert_eq!(beside.status, 201);
    // Of its pool the lab may open what it had not needed before.
    assert!(
        with_hundred <= with_two + 8,
        "{with_two} connections with two that wait, {with_hundred} with a hundred"
    );
    // A wait that ends before the run does.
    let hasty = place.lab(&["--on-busy", "wait:500ms"]);
    let waited = order(&hasty, "k").send().await;
    assert_eq!(refusal(&waited), in_progress());
    retry_after(&waited);
    assert_eq!(effects(&lab, "POST /orders").await, 2);
    for call in few.into_iter().chain(many) {
        call.abort();
    }
    running.abort();
}
