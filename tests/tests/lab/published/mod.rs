//! The published bugs of other idempotency layers, by the numbers of the project's list: those that need
//! processes that die, stores that are cut off, or options of the lab. What can be asked of any service is in
//! `examples/idempotency-kit`, and runs here as `published_cases`.
//!
//! | Case | What broke elsewhere | Shown by |
//! |---|---|---|
//! | 1 | a missing deadline read as "abandoned" | [`races`]; `processes::a_first_run_is_in_progress_for_the_other_process` |
//! | 3 | a late owner overwrites its successor | [`races`]; on memory `orders::a_lapsed_run_is_taken_over_and_its_late_answer_is_not_kept` |
//! | 4 | a fence made of what is not unique | [`races`], two processes |
//! | 5 | a lost reply makes a request its own rival | [`races`]; on memory `operators::lost_and_doubled_replies_have_the_effect_of_one` |
//! | 6 | who loses the race gets 5xx | [`races`], two processes |
//! | 9 | simultaneous replays refused, or written | [`races`] |
//! | 10 | one time to live for lock and result | [`races`], two processes |
//! | 12 | a lapse must not always mean: run again | [`races`], two processes |
//! | 13 | stores that disagree on lapse and release | `tower_claim::conformance`, one suite for all; run by `engines` as `suite`, `redis::suite`, `etcd::suite` |
//! | 14 | a wait that is a nap, or holds a connection | [`races`]; `orders::waiting_repeats_get_the_answer_when_it_is_there` |
//! | 16 (d) | an outer timeout cancels the store's write | [`outages`]; (a) to (c) are the kit's |
//! | 19 | the store fails behind the handler | [`outages`] |
//! | 20 | an outage runs the handler twice | [`outages`] |
//! | 21 | a crash between commit and record | `engines`: `in_transaction::crash` |
//! | 27 | replay detection eats the retry | [`keys`] |
//! | 34 | key or hash computed again behind a mutation | [`payload`] |
//! | 49 | scripts that need several slots of a Redis Cluster | `engines`: `redis::cluster`, the whole suite on a cluster |
//! | 50 | memory without a bound | [`replay`] |
//!
//! What HTTP cannot reach, and where it is shown then:
//!
//! | Case | Why not | Shown by |
//! |---|---|---|
//! | 1, 10, 12 on memory | a process that dies takes its memory store along | `tower-idempotency`: `laws::lapse`; a lapse without a death: `orders::a_lapsed_run_is_taken_over_and_its_late_answer_is_not_kept` |
//! | 1, a record without a lease | none can be planted through a layer | `engines`: `redis::bytes`, `postgres::rows` and `lab::bad_input` plant what is no record |
//! | 18, an inner error | a host makes a response of it first | `tower-idempotency`: `laws::run`; panics and 5xx are the kit's |

/// Makes a test of each case on memory, Redis and PostgreSQL.
macro_rules! on_memory_redis_and_postgres {
    ($($case:ident),* $(,)?) => {
        $crate::engines::on_engine!(memory Memory: $($case,)*);
        #[cfg(feature = "redis")]
        $crate::engines::on_engine!(redis Redis: $($case,)*);
        #[cfg(feature = "postgres")]
        $crate::engines::on_engine!(postgres Postgres: $($case,)*);
    };
}

mod keys;
mod outages;
mod payload;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod races;
mod replay;

use system_tests::client::{Answer, Call, get, post};
use system_tests::programs::Lab;

fn order(lab: &Lab, key: &str) -> Call {
    post(lab.address(), "/orders").key(key)
}

fn refusal(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.code())
}

fn unavailable() -> (u16, String) {
    (503, "store-unavailable".to_owned())
}

/// Whole seconds, from 1 to 60.
fn retry_after(answer: &Answer) -> u64 {
    let after = answer.headers.get("retry-after").expect("Retry-After");
    let after = after.to_str().expect("text").parse().expect("seconds");
    assert!((1..=60).contains(&after), "{after}");
    after
}

/// How often the layer of `/orders` counted this.
async fn counted(lab: &Lab, outcome: &str) -> u64 {
    let metrics = get(lab.address(), "/metrics").send().await;
    let name = format!(r#"idempotency_outcomes_total{{layer="orders",outcome="{outcome}"}} "#);
    let text = String::from_utf8_lossy(&metrics.body);
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |count| count.parse().expect("a number"))
}
