//! The events, all of them: `telemetry.md` is their table. A key is told by the first eight digits of its hash, and
//! nothing of a request but its path, where its key is weak.
#![cfg_attr(
    not(feature = "tracing"),
    allow(unused_variables, reason = "nobody is told")
)]

use std::error::Error;
use std::fmt::Display;

use tower_claim::http::KeyWeakness;
use tower_claim::store::TookOver;
use tower_claim::{Key, StoreError, Token};

use super::Meter;
use crate::order::Misorder;

/// An event of this layer value, where there is `tracing`.
macro_rules! tell {
    ($level:ident, $target:literal, $meter:ident, $($told:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::event!(
            target: $target,
            tracing::Level::$level,
            layer = &*$meter.layer,
            $($told)*
        )
    };
}

/// A run, for those who look for it in a log.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "nobody is told"))]
pub(crate) struct RunName {
    pub(crate) key: Key,
    pub(crate) token: Token,
}

#[cfg_attr(
    not(feature = "tracing"),
    allow(clippy::unused_self, reason = "nobody is told")
)]
impl Meter {
    /// Something of this name happened, to this run where it was one: one of [`Counts`](crate::Counts).
    pub(crate) fn outcome(&self, outcome: &'static str, run: Option<RunName>) {
        self.count(outcome);
        tell!(
            DEBUG,
            "tower_idempotency::outcome",
            self,
            outcome,
            key = run.map(|run| run.key.prefix()),
            token = run.map(|run| run.token.get()),
            "counted",
        );
    }

    /// A request was answered without a run of its own. The key is not known where it could not be read.
    pub(crate) fn answered(&self, key: Option<Key>, status: &'static str) {
        tell!(
            DEBUG,
            "tower_idempotency::answer",
            self,
            key = key.map(|key| key.prefix()),
            status,
            "answered without a run",
        );
    }

    pub(crate) fn took_over(&self, run: RunName, attempt: u32, before: Option<&TookOver>) {
        tell!(
            INFO,
            "tower_idempotency::run",
            self,
            key = run.key.prefix(),
            token = run.token.get(),
            attempt,
            before = before.map(|before| before.token.get()),
            before_began_ms = before.map(|before| millis(before.since)),
            before_beat_ms = before.map(|before| millis(before.last_beat)),
            "a run has taken over from one that lapsed",
        );
    }

    pub(crate) fn superseded(&self, run: RunName) {
        tell!(
            WARN,
            "tower_idempotency::run",
            self,
            key = run.key.prefix(),
            token = run.token.get(),
            "the outcome of a run was not accepted: another had taken over",
        );
    }

    pub(crate) fn outcome_unknown(&self, run: RunName) {
        tell!(
            WARN,
            "tower_idempotency::run",
            self,
            key = run.key.prefix(),
            token = run.token.get(),
            "the outcome of a run is unknown: it ended without an answer behind its point of no return",
        );
    }

    pub(crate) fn unconfirmed(&self, run: RunName, error: &StoreError) {
        tell!(
            WARN,
            "tower_idempotency::run",
            self,
            key = run.key.prefix(),
            token = run.token.get(),
            error = said(error),
            "the store did not confirm an outcome: the keeper goes on trying",
        );
    }

    pub(crate) fn not_committed(&self, run: RunName, error: &(dyn Error + 'static)) {
        tell!(
            WARN,
            "tower_idempotency::run",
            self,
            key = run.key.prefix(),
            token = run.token.get(),
            error = said(error),
            "a handler's transaction was not committed",
        );
    }

    pub(crate) fn transaction_left_behind(&self, run: RunName, why: &(dyn Error + 'static)) {
        tell!(
            ERROR,
            "tower_idempotency::run",
            self,
            key = run.key.prefix(),
            token = run.token.get(),
            error = said(why),
            "a handler's transaction cannot be committed",
        );
    }

    pub(crate) fn panicked(&self, run: RunName) {
        tell!(
            ERROR,
            "tower_idempotency::run",
            self,
            key = run.key.prefix(),
            token = run.token.get(),
            "a handler panicked",
        );
    }

    /// What was answered is kept without its body, for this reason.
    pub(crate) fn not_kept(&self, run: RunName, why: &'static str) {
        tell!(
            DEBUG,
            "tower_idempotency::run",
            self,
            key = run.key.prefix(),
            token = run.token.get(),
            why,
            "an outcome is kept without its response",
        );
    }

    /// What a callback of the user's made unfit to be kept.
    pub(crate) fn cannot_be_kept(&self, run: RunName) {
        tell!(
            ERROR,
            "tower_idempotency::run",
            self,
            key = run.key.prefix(),
            token = run.token.get(),
            "a response could not be redacted or sealed: it is not kept",
        );
    }

    /// The task of a run is gone.
    pub(crate) fn cut_off(&self, run: RunName) {
        tell!(
            WARN,
            "tower_idempotency::run",
            self,
            key = run.key.prefix(),
            token = run.token.get(),
            "a run was cut off: its claim lapses, as after a crash",
        );
    }

    pub(crate) fn unprotected(&self, key: Key) {
        tell!(
            WARN,
            "tower_idempotency::run",
            self,
            key = key.prefix(),
            "a handler runs without a claim: the store did not answer",
        );
    }

    pub(crate) fn hook_asked(&self, run: RunName, hook: &'static str) {
        tell!(
            INFO,
            "tower_idempotency::hook",
            self,
            hook,
            key = run.key.prefix(),
            token = run.token.get(),
            "a hook is asked",
        );
    }

    pub(crate) fn hook_answered(&self, run: RunName, hook: &'static str, answer: &'static str) {
        tell!(
            INFO,
            "tower_idempotency::hook",
            self,
            hook,
            key = run.key.prefix(),
            token = run.token.get(),
            answer,
            "a hook has answered",
        );
    }

    /// Of a run, or of a repeat that is to be told in other words.
    pub(crate) fn hook_panicked(&self, run: Option<RunName>, hook: &'static str) {
        tell!(
            ERROR,
            "tower_idempotency::hook",
            self,
            hook,
            key = run.map(|run| run.key.prefix()),
            token = run.map(|run| run.token.get()),
            "a hook panicked",
        );
    }

    pub(crate) fn store_failed(&self, error: &StoreError) {
        tell!(
            WARN,
            "tower_idempotency::store",
            self,
            error = said(error),
            "no answer: the store failed",
        );
    }

    pub(crate) fn unreadable(&self, key: Key, why: &dyn Display) {
        tell!(
            ERROR,
            "tower_idempotency::store",
            self,
            key = key.prefix(),
            error = %why,
            "a kept response cannot be read",
        );
    }

    /// The first weak key on a route.
    pub(crate) fn weak_key(&self, weakness: KeyWeakness, path: &str) {
        tell!(
            WARN,
            "tower_idempotency::key",
            self,
            path,
            weakness = weakness.name(),
            "a client's business key is not likely to name an intent: {}",
            weakness.text(),
        );
    }

    pub(crate) fn misorder(&self, misorder: Misorder) {
        tell!(
            WARN,
            "tower_idempotency::order",
            self,
            mend = misorder.mend(),
            "{misorder}",
        );
    }
}

#[cfg(feature = "tracing")]
fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// An error and its sources, the first line of each: behind it PostgreSQL quotes the row that it refused.
#[cfg(feature = "tracing")]
fn said(error: &(dyn Error + 'static)) -> String {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    let lines = errors.map(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().to_owned()
    });
    lines.collect::<Vec<_>>().join(": ")
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use super::*;

    #[test]
    fn of_an_error_its_first_lines_are_told_and_no_row() {
        let quoting = "duplicate key\nDETAIL: Key (iban)=(DE02) already exists.";
        let error = StoreError::unavailable(quoting);
        assert_eq!(said(&error), "the store is unavailable: duplicate key");
    }
}
