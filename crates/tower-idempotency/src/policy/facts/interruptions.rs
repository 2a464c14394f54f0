//! What a client can know of times when something breaks.

use std::time::Duration;

use tower_claim::store::Capabilities;
use tower_claim::{LapsePolicy, Renewal, Terms};

use super::Chapter;
use crate::json::Object;
use crate::policy::words;
use crate::reply::STATUS;
use crate::store_down::OnStoreDown;

/// What is known of times when something breaks.
pub(super) struct Interruptions<'a> {
    pub(super) terms: &'a Terms,
    /// How long it is known that a hook is to be asked, where there is one.
    pub(super) asks_a_hook: Option<Duration>,
    /// The claim is part of the user's transaction.
    pub(super) is_inside: bool,
    pub(super) unfinished_keep: Duration,
    pub(super) on_store_down: OnStoreDown,
    pub(super) store: &'a Capabilities,
}

pub(super) fn interruptions(told: &Interruptions<'_>) -> Chapter {
    let Interruptions {
        terms,
        asks_a_hook: _,
        is_inside,
        unfinished_keep: _,
        on_store_down,
        store,
    } = *told;
    let mut chapter = Chapter::new("interruptions", "When something breaks in between");
    chapter.tell(
        "runs_on_after_hang_up",
        true,
        "A request that was begun runs to its end, also when its client hangs up; a repeat gets its answer.",
    );
    if is_inside {
        chapter.tell_word(
            "on_lapse",
            "rolled-back",
            "When the server dies in the middle, nothing of the request is left: its key, its work and its answer are one \
             transaction. A repeat runs.",
        );
    } else {
        lapse(&mut chapter, told);
    }
    let (word, text) = match on_store_down {
        OnStoreDown::Refuse => (
            "refuse",
            "When the store of the keys does not answer, nothing runs: 503 `store-unavailable`."
                .to_owned(),
        ),
        OnStoreDown::RunUnprotected => (
            "run-unprotected",
            format!(
                "When the store of the keys does not answer, the request runs without protection, and its answer says so \
                 (`{}: unprotected`): a repeat runs again.",
                words::title_case(&STATUS)
            ),
        ),
    };
    chapter.tell_word("on_store_down", word, text);
    let text = if store.durable {
        "Keys and answers outlive a restart of the service."
    } else {
        "Keys and answers are lost when the service restarts: a repeat after that runs."
    };
    chapter.tell("survives_restart", store.durable, text);
    let text = match (store.may_forget(), terms.trusts(store)) {
        (false, _) => "The store does not forget by itself what it has answered.",
        (true, false) => {
            "The store may forget what it answered when it fails over: a repeat after that runs."
        }
        (true, true) => {
            "The store may forget what it answered when it fails over, and is trusted all the same: a repeat after that runs."
        }
    };
    let json = Object::new()
        .raw("possible", store.may_forget())
        .raw("trusted", terms.trusts(store));
    chapter.tell("forgets", json.end(), text);
    chapter
}

/// What a run that was lost means, where claims stand outside of its work.
fn lapse(chapter: &mut Chapter, told: &Interruptions<'_>) {
    let Interruptions {
        terms,
        asks_a_hook,
        unfinished_keep,
        ..
    } = *told;
    chapter.tell(
        "lease_seconds",
        words::seconds(terms.lease()),
        format!(
            "When the server dies in the middle, its key is answered 409 `in-progress` for {} at most.",
            words::span(terms.lease())
        ),
    );
    let (word, text) = match (asks_a_hook, terms.settings().on_lapse) {
        (Some(_), _) => (
            "reconcile",
            "After that the server finds out what the first request came to, before anything runs again.",
        ),
        (None, LapsePolicy::Hold) => (
            "hold",
            "After that nobody knows how the first request ended: repeats are answered 409 `outcome-unknown`, until the \
             operator has found out.",
        ),
        _ => (
            "take-over",
            "After that a repeat runs; except behind the point of no return, where repeats are answered 409 \
             `outcome-unknown`, until the operator has found out.",
        ),
    };
    chapter.tell_word("on_lapse", word, text);
    let text = match asks_a_hook {
        None => format!(
            "An unknown outcome is remembered for {}; then its key is free.",
            words::span(unfinished_keep)
        ),
        Some(keep) => format!(
            "An unknown outcome is remembered for {}. Once it was asked for what the first request came to, its key is free \
             after {} only.",
            words::span(unfinished_keep),
            words::span(keep)
        ),
    };
    chapter.tell("unknown_seconds", words::seconds(unfinished_keep), text);
    let text = match terms.renewal() {
        Renewal::Off => "The hold of a request that takes longer is not renewed.".to_owned(),
        Renewal::Progress { stall_after } => format!(
            "The hold of a request is renewed while its work moves: after {} without progress it is not.",
            words::span(stall_after)
        ),
        _ => "The hold of a request is renewed while it runs.".to_owned(),
    };
    let stall = match terms.renewal() {
        Renewal::Off => "\"off\"".to_owned(),
        Renewal::Progress { stall_after } => words::seconds(stall_after),
        _ => "\"always\"".to_owned(),
    };
    chapter.tell("renewal", stall, text);
    chapter.tell(
        "max_hold_seconds",
        words::seconds(terms.max_hold()),
        format!(
            "The hold of a request is renewed for {} at most, and ends {} after that.",
            words::span(terms.max_hold()),
            words::span(terms.lease())
        ),
    );
}
