//! Which answers are kept: a rule is a function, so it is asked about every status there is.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::outcome::Outcome;

/// What a rule says, as runs of statuses with one outcome.
pub(super) struct Judged(Vec<(RangeInclusive<u16>, Option<Outcome>)>);

impl Judged {
    /// Asks about each of these. A rule that panics has no word on that status: such an answer is nobody's promise.
    pub(super) fn by(statuses: RangeInclusive<u16>, rule: impl Fn(u16) -> Outcome) -> Self {
        let mut runs: Vec<(RangeInclusive<u16>, Option<Outcome>)> = Vec::new();
        for status in statuses {
            let outcome = catch_unwind(AssertUnwindSafe(|| rule(status))).ok();
            match runs.last_mut() {
                Some((run, last)) if *last == outcome => *run = *run.start()..=status,
                _ => runs.push((status..=status, outcome)),
            }
        }
        Self(runs)
    }

    fn of(&self, outcome: Outcome) -> impl Iterator<Item = &RangeInclusive<u16>> {
        let runs = self.0.iter();
        runs.filter(move |(_, o)| *o == Some(outcome))
            .map(|(run, _)| run)
    }

    pub(super) fn has(&self, outcome: Outcome) -> bool {
        self.of(outcome).next().is_some()
    }

    /// `[[200,400],[402,406]]`, both ends included.
    pub(super) fn json(&self, outcome: Outcome) -> String {
        let runs = self.of(outcome);
        crate::json::list(runs.map(|run| format!("[{},{}]", run.start(), run.end())))
    }

    /// `2xx, 3xx, 4xx but 401, 407`.
    pub(super) fn text(&self, outcome: Outcome) -> String {
        let mut said = Vec::new();
        for class in 1..=5 {
            let class_runs = class * 100..=class * 100 + 99;
            let inside = count(self.of(outcome), &class_runs);
            match inside {
                0 => {}
                100 => said.push(format!("{class}xx")),
                51.. => {
                    let others = self.0.iter().filter(|(_, o)| *o != Some(outcome));
                    let others = ranges(others.map(|(run, _)| run), &class_runs);
                    said.push(format!("{class}xx but {others}"));
                }
                _ => said.push(ranges(self.of(outcome), &class_runs)),
            }
        }
        if said.is_empty() {
            return "none".to_owned();
        }
        said.join("; ")
    }

    /// The numbers themselves.
    pub(super) fn numbers(&self, outcome: Outcome) -> String {
        ranges(self.of(outcome), &(0..=u16::MAX))
    }
}

fn cut(run: &RangeInclusive<u16>, to: &RangeInclusive<u16>) -> Option<RangeInclusive<u16>> {
    let cut = *run.start().max(to.start())..=*run.end().min(to.end());
    (!cut.is_empty()).then_some(cut)
}

fn count<'a>(
    runs: impl Iterator<Item = &'a RangeInclusive<u16>>,
    to: &RangeInclusive<u16>,
) -> usize {
    runs.filter_map(|run| cut(run, to))
        .map(|run| run.len())
        .sum()
}

fn ranges<'a>(
    runs: impl Iterator<Item = &'a RangeInclusive<u16>>,
    to: &RangeInclusive<u16>,
) -> String {
    let mut out = String::new();
    for run in runs.filter_map(|run| cut(run, to)) {
        if !out.is_empty() {
            out.push_str(", ");
        }
        let _ = match run.len() {
            1 => write!(out, "{}", run.start()),
            2 => write!(out, "{}, {}", run.start(), run.end()),
            _ => write!(out, "{}–{}", run.start(), run.end()),
        };
    }
    if out.is_empty() {
        out.push_str("none");
    }
    out
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::outcome::{default_grpc_outcome, default_outcome};

    #[test]
    fn the_default_rule_is_told_in_a_line() {
        let rule = |status| default_outcome(StatusCode::from_u16(status).unwrap());
        let judged = Judged::by(100..=599, rule);
        assert_eq!(
            judged.text(Outcome::Keep),
            "2xx; 3xx; 4xx but 401, 407, 408, 421, 423, 425, 429"
        );
        assert_eq!(
            judged.text(Outcome::Release),
            "1xx; 401, 407, 408, 421, 423, 425, 429; 5xx"
        );
        assert_eq!(judged.text(Outcome::Tombstone), "none");
        assert_eq!(
            judged.json(Outcome::Keep),
            "[[200,400],[402,406],[409,420],[422,422],[424,424],[426,428],[430,499]]"
        );
    }

    #[test]
    fn numbers_of_grpc_are_told_one_by_one() {
        let judged = Judged::by(0..=16, |status| default_grpc_outcome(status as u8));
        assert_eq!(judged.numbers(Outcome::Keep), "0, 3, 5–7, 9, 11, 12");
    }

    #[test]
    fn a_rule_that_panics_says_nothing() {
        let judged = Judged::by(100..=599, |status| {
            assert!(status < 500, "told to");
            Outcome::Keep
        });
        assert_eq!(judged.json(Outcome::Keep), "[[100,499]]");
        assert_eq!(judged.json(Outcome::Release), "[]");
    }
}
