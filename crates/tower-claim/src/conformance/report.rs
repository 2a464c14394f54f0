//! What the suite found.

use std::fmt;
use std::time::Duration;

/// What a run of the suite found. `Display` names every law that is not known to hold.
#[derive(Debug, Clone)]
#[must_use = "a report says nothing until it is asserted or read"]
pub struct Report {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) took: Duration,
}

/// One law and how it fared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The law's name, which states it.
    pub law: &'static str,
    /// How it fared.
    pub verdict: Verdict,
}

/// How a law fared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It held.
    Held,
    /// It is broken; what was seen.
    Broken(String),
    /// The machine or the engine was too slow for the unit, each time: nothing can be said. No success.
    Stalled,
    /// Not run, and why.
    Skipped(&'static str),
}

impl Report {
    /// Every law, in the suite's order.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The laws that are not known to hold: broken or stalled.
    pub fn failures(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes
            .iter()
            .filter(|o| matches!(o.verdict, Verdict::Broken(_) | Verdict::Stalled))
    }

    /// Whether every law that was run held, and at least one was run.
    pub fn is_ok(&self) -> bool {
        self.count(|v| *v == Verdict::Held) > 0 && self.failures().next().is_none()
    }

    /// How long the run took, in real time.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// For tests.
    ///
    /// # Panics
    ///
    /// Unless [`Report::is_ok`], with the report as the message.
    #[track_caller]
    #[expect(clippy::panic, reason = "this is what it is for")]
    pub fn assert(&self) {
        if !self.is_ok() {
            panic!("{self}");
        }
    }

    fn count(&self, which: impl Fn(&Verdict) -> bool) -> usize {
        self.outcomes.iter().filter(|o| which(&o.verdict)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} laws in {:.1?}: {} held",
            self.outcomes.len(),
            self.took,
            self.count(|v| *v == Verdict::Held)
        )?;
        for (count, name) in [
            (self.count(|v| matches!(v, Verdict::Broken(_))), "broken"),
            (self.count(|v| *v == Verdict::Stalled), "stalled"),
            (self.count(|v| matches!(v, Verdict::Skipped(_))), "skipped"),
        ] {
            if count > 0 {
                write!(f, ", {count} {name}")?;
            }
        }
        for Outcome { law, verdict } in &self.outcomes {
            match verdict {
                Verdict::Held => {}
                Verdict::Broken(seen) => write!(f, "\n  broken   {law}: {seen}")?,
                Verdict::Stalled => write!(f, "\n  stalled  {law}: choose a larger unit")?,
                Verdict::Skipped(why) => write!(f, "\n  skipped  {law}: {why}")?,
            }
        }
        Ok(())
    }
}
