//! Client disconnects, crashes, outages.

use system_tests::client::{Answer, until};

use super::{counted, order, refusal, retry_after, unavailable};
use crate::engines::Engine;
use crate::line::Line;
use crate::{effects, rows};

on_memory_redis_and_postgres!(
    case_16_d_an_outer_timeout_does_not_stop_the_run,
    case_19_a_store_lost_behind_the_handler_loses_no_answer,
    case_20_an_outage_runs_nothing_twice,
    case_20_open_an_outage_runs_unprotected_and_says_so,
);

/// fullstackhero/dotnet-starter-kit #1333 and #1378, caura-ai/caura #1629
async fn case_16_d_an_outer_timeout_does_not_stop_the_run(on: Engine) {
    let lab = on.lab(&["--outer-timeout", "300ms"]);
    let late = order(&lab, "k").lab("delay=2000").send().await;
    assert_eq!((late.status.as_u16(), late.replayed()), (504, false));
    // On a busy machine the timeout may strike a repeat, too.
    let ask = || order(&lab, "k").send();
    let after = until("its outcome is kept", ask, |answer| answer.status == 201).await;
    assert!(after.replayed());
    assert_eq!(effects(&lab, "POST /orders").await, 1);
    let ask = || rows(&lab, "recent", "outcome=timed_out");
    let given_up = until("its row ends", ask, |rows| !rows.is_empty()).await;
    assert_eq!(given_up[0]["status"], 504, "{given_up:?}");
    // Off.
    let lab = on.lab(&["--outer-timeout", "0"]);
    let slow = order(&lab, "k").lab("delay=400").send().await;
    assert_eq!(slow.status, 201);
}

/// gofiber/fiber answered with an error though the work was done.
async fn case_19_a_store_lost_behind_the_handler_loses_no_answer(on: Engine) {
    let line = Line::to(on);
    let lab = line.lab(&[]);
    let first = tokio::spawn(order(&lab, "k").lab("delay=5000").send());
    until("it runs", || effects(&lab, "POST /orders"), |n| *n == 1).await;
    line.cut(&lab).await;
    let first = first.await.expect("no panic");
    assert_eq!((first.status.as_u16(), first.replayed()), (201, false));
    let without = order(&lab, "k").send().await;
    assert_eq!(refusal(&without), unavailable());
    retry_after(&without);
    assert_eq!(counted(&lab, "unconfirmed").await, 1);

    line.mend(&lab).await;
    let ask = || order(&lab, "k").send();
    let after = until("its outcome is brought home", ask, Answer::replayed).await;
    assert_eq!((after.status, &after.body), (first.status, &first.body));
    assert_eq!(effects(&lab, "POST /orders").await, 1);
}

/// ikyriak/IdempotentAPI #23, Dev1822/paySphere #1919
async fn case_20_an_outage_runs_nothing_twice(on: Engine) {
    let line = Line::to(on);
    let lab = line.lab(&[]);
    let first = order(&lab, "k").send().await;
    assert_eq!(first.status, 201);
    line.cut(&lab).await;
    for key in ["k", "new"] {
        let without = order(&lab, key).send().await;
        assert_eq!(refusal(&without), unavailable());
        retry_after(&without);
    }
    assert_eq!(effects(&lab, "POST /orders").await, 1);
    line.mend(&lab).await;
    let ask = || order(&lab, "k").send();
    let after = until("the store is back", ask, Answer::replayed).await;
    assert_eq!(after.body, first.body);
    assert_eq!(effects(&lab, "POST /orders").await, 1);
}

/// The same, of a lab that is told to go on without its store.
async fn case_20_open_an_outage_runs_unprotected_and_says_so(on: Engine) {
    let line = Line::to(on);
    let lab = line.lab(&["--store-down", "open"]);
    let first = order(&lab, "k").send().await;
    assert_eq!(first.status, 201);
    assert!(!first.headers.contains_key("idempotency-status"));
    line.cut(&lab).await;
    let without = order(&lab, "k").send().await;
    assert_eq!((without.status.as_u16(), without.replayed()), (201, false));
    assert_eq!(without.headers["idempotency-status"], "unprotected");
    assert_eq!(effects(&lab, "POST /orders").await, 2);
    assert_eq!(counted(&lab, "unprotected").await, 1);
    line.mend(&lab).await;
    let ask = || order(&lab, "k").send();
    let after = until("the store is back", ask, Answer::replayed).await;
    assert_eq!(after.body, first.body, "the first run's, not the second's");
}
