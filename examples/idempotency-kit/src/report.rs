//! What was found.

use std::fmt;

use serde_json::{Value, json};

use crate::cases::Case;
use crate::kit::Kit;
use crate::verdict::Verdict;

/// One case, and how it ended.
#[derive(Debug, Clone)]
pub struct CaseReport {
    /// Its number.
    pub number: &'static str,
    /// The law it checks.
    pub name: &'static str,
    /// The public report, or the code, that it was born of.
    pub source: &'static str,
    /// What is right.
    pub right: &'static str,
    /// How it ended.
    pub verdict: Verdict,
}

/// All cases, in order.
#[derive(Debug, Clone)]
pub struct Report {
    /// The service that was examined.
    pub service: String,
    /// What was found out about it.
    pub found: Vec<String>,
    /// The cases.
    pub cases: Vec<CaseReport>,
}

impl CaseReport {
    pub(crate) fn new(case: &Case, verdict: Verdict) -> Self {
        Self {
            number: case.number,
            name: case.name,
            source: case.source,
            right: case.right,
            verdict,
        }
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "case": self.number, "name": self.name, "source": self.source, "right": self.right,
        });
        match &self.verdict {
            Verdict::Pass(seen) => {
                json["result"] = json!("pass");
                json["seen"] = json!(seen);
            }
            Verdict::Fail(exchange) => {
                json["result"] = json!("fail");
                json["request"] = json!(exchange.request);
                json["expected"] = json!(exchange.expected);
                json["seen"] = json!(exchange.seen);
            }
            Verdict::Skip(reason) => {
                json["result"] = json!("skipped");
                json["reason"] = json!(reason);
            }
        }
        json
    }
}

impl Report {
    pub(crate) fn new(kit: &Kit, cases: Vec<CaseReport>) -> Self {
        let http = match kit.settings.http2 {
            true => "HTTP/2",
            false => "HTTP/1.1",
        };
        let known = &kit.known;
        let replays = match (known.marker, known.answers_differ) {
            (Some(marker), _) => format!("replays are marked by `{marker}`"),
            (None, true) => "replays are not marked, but each run answers differently".to_owned(),
            (None, false) => "replays are not marked, and runs answer alike".to_owned(),
        };
        let keys = match (known.quoted, known.key_required) {
            (true, _) => "keys must be quoted",
            (false, true) => "a key is required",
            (false, false) => "a key is optional",
        };
        let effects = match &kit.settings.effects {
            Some(path) => format!("effects are counted at {path}"),
            None => "effects are not counted".to_owned(),
        };
        let trip = format!("a round trip takes up to {:.1?}", known.round_trip);
        Self {
            service: format!("{}, POST {}, {http}", kit.base, kit.settings.post),
            found: vec![replays, keys.to_owned(), effects, trip],
            cases,
        }
    }

    /// Whether no case failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failed().next().is_none()
    }

    /// The cases that failed.
    pub fn failed(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases
            .iter()
            .filter(|case| matches!(case.verdict, Verdict::Fail(_)))
    }

    /// The cases that could not be judged.
    pub fn skipped(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases
            .iter()
            .filter(|case| matches!(case.verdict, Verdict::Skip(_)))
    }

    /// The report as JSON: `{"service", "found", "passed", "failed", "skipped", "cases": [{"case", "name", "source",
    /// "right", "result": "pass" | "fail" | "skipped", …}]}`; a pass has `seen`, a failure `request`, `expected` and
    /// `seen`, a skipped case its `reason`.
    #[must_use]
    pub fn json(&self) -> Value {
        let (passed, failed, skipped) = self.counts();
        let cases: Vec<Value> = self.cases.iter().map(CaseReport::json).collect();
        json!({
            "service": self.service, "found": self.found,
            "passed": passed, "failed": failed, "skipped": skipped, "cases": cases,
        })
    }

    fn counts(&self) -> (usize, usize, usize) {
        let (failed, skipped) = (self.failed().count(), self.skipped().count());
        (self.cases.len() - failed - skipped, failed, skipped)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.service)?;
        writeln!(f, "found: {}\n", self.found.join("; "))?;
        let width = self.cases.iter().map(|case| case.name.len()).max();
        let width = width.unwrap_or(0);
        for case in &self.cases {
            let result = match case.verdict {
                Verdict::Pass(_) => "pass",
                Verdict::Fail(_) => "FAIL",
                Verdict::Skip(_) => "skip",
            };
            writeln!(
                f,
                "{result}  {:>4}  {:width$}  {}",
                case.number, case.name, case.source
            )?;
        }
        for case in self.failed() {
            if let Verdict::Fail(exchange) = &case.verdict {
                writeln!(f, "\ncase {}: {}", case.number, case.name)?;
                writeln!(f, "  report    {}", case.source)?;
                writeln!(f, "  right     {}", case.right)?;
                writeln!(f, "  request   {}", exchange.request)?;
                writeln!(f, "  expected  {}", exchange.expected)?;
                writeln!(f, "  seen      {}", exchange.seen)?;
            }
        }
        if self.skipped().next().is_some() {
            writeln!(f, "\nskipped:")?;
        }
        for case in self.skipped() {
            if let Verdict::Skip(reason) = &case.verdict {
                writeln!(f, "  {:>4}  {reason}", case.number)?;
            }
        }
        let (passed, failed, skipped) = self.counts();
        writeln!(f, "\n{passed} passed, {failed} failed, {skipped} skipped")
    }
}
