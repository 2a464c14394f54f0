//! What the answer says of the work: the layer's rules, and what goes before them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::HeaderMap;
use http::response::Parts;
use tower_claim::Code;

use crate::open::OpenRun;
use crate::outcome::{Outcome, Verdict};

/// The verdict by the head alone.
pub(crate) fn by_head(open: &OpenRun, head: &Parts) -> Verdict {
    if is_no_outcome(open) {
        return Verdict::Now(Outcome::Release);
    }
    let rules = &open.shared.outcome;
    let verdict = judged(|| rules.judge(head, open.is_grpc(&head.headers)));
    match verdict.unwrap_or(Verdict::Now(Outcome::Tombstone)) {
        Verdict::Now(outcome) => Verdict::Now(past_return(open, outcome)),
        in_trailers => in_trailers,
    }
}

/// What the user's rules say; `None` where one panics. Behind the work that must not free the key: an answer that
/// nobody can judge is sent, and remembered as done.
fn judged<T>(judge: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(judge)).ok()
}

pub(crate) fn at_the_end(
    verdict: Verdict,
    open: &OpenRun,
    trailers: Option<&HeaderMap>,
) -> Outcome {
    let outcome = match verdict {
        _ if open.upload.has_failed() => Outcome::Release,
        Verdict::Now(outcome) => outcome,
        Verdict::InTrailers => {
            judged(|| open.shared.outcome.judge_grpc(trailers)).unwrap_or(Outcome::Tombstone)
        }
    };
    past_return(open, outcome)
}

/// Past the point of no return every answer is an outcome.
fn past_return(open: &OpenRun, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Release if open.run.is_marked() => Outcome::Keep,
        outcome => outcome,
    }
}

/// Whatever the handler answers: the upload turned out not to be what its head says. What was not read of it by now
/// is not looked at.
pub(super) fn is_no_outcome(open: &OpenRun) -> bool {
    open.upload.has_failed() && !open.run.is_marked()
}

/// Whether a refusal of ours is the answer of a run past its point of no return: by its own words nothing was done,
/// and a repeat runs. Neither is true any more, so it must not be told, nor kept and told again for a day.
pub(super) fn takes_back_its_word(open: &OpenRun, head: &Parts) -> bool {
    open.run.is_marked() && head.extensions.get::<Code>().is_some()
}

/// Whether the handler says, in its head, that it did not do its work.
pub(crate) fn refuses(head: &Parts) -> bool {
    head.status.as_u16() >= 400 || is_refusal(&head.headers)
}

/// As gRPC says it: in the head where there is no body, else in the trailers.
pub(super) fn is_refusal(headers: &HeaderMap) -> bool {
    headers
        .get("grpc-status")
        .is_some_and(|status| status != "0")
}
