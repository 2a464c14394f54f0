//! Runs laws and collects verdicts.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;

use super::bench::{AdminBench, Bench, FenceBench, ManyBench};
use super::law::{Law, Needs, Stop};
use super::schedule::Schedule;
use super::trouble::Troubled;
use super::{Outcome, Report, Trouble, Verdict, laws};
use crate::testing::ManualClock;
use crate::{ClaimAdmin, ClaimMany, ClaimStore, DynFenceStore, FenceStore};

/// How time passes for the store under test.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Time {
    /// The store reads this clock, and the suite moves it: laws run one after the other, in no time.
    Manual(ManualClock),
    /// The store has a clock of its own: the suite waits, many laws at once.
    Real {
        /// One step of the laws; leases are 2 to 30 units. A hundred round trips should fit.
        unit: Duration,
        /// How coarse the engine's clock and timers are. Under the unit.
        tolerance: Duration,
    },
}

/// Laws run at the same time, on real time: they mostly wait.
const AT_ONCE: usize = 32;
/// Runs of a law that stalls, the first not counted.
const RETRIES: usize = 6;
/// A law that hangs in the store itself.
const HUNG: Duration = Duration::from_secs(30);

/// Runs the laws. See the [module's docs](super).
#[derive(Debug, Clone)]
pub struct Suite {
    time: Time,
    trouble: Option<Trouble>,
    only: Option<String>,
    at_once: usize,
}

impl Suite {
    /// Every law, no trouble.
    pub fn new(time: Time) -> Self {
        Self {
            time,
            trouble: None,
            only: None,
            at_once: AT_ONCE,
        }
    }

    /// Every call meets this trouble on its way, and a small client deals with it: repeats a call whose
    /// answer is missing, with the same nonce.
    #[must_use]
    pub fn behind(mut self, trouble: Trouble) -> Self {
        self.trouble = Some(trouble);
        self
    }

    /// Only the laws whose names contain this: to look into one.
    #[must_use]
    pub fn only(mut self, part_of_name: impl Into<String>) -> Self {
        self.only = Some(part_of_name.into());
        self
    }

    /// How many laws run at the same time on real time, 32 by default. They mostly wait: with an engine whose
    /// unit is seconds, run all of them at once. On a clock moved by hand they run one by one.
    #[must_use]
    pub fn at_once(mut self, laws: usize) -> Self {
        self.at_once = laws.max(1);
        self
    }

    /// Every law of [`ClaimStore`].
    pub async fn claim_store<S: ClaimStore>(&self, make_store: impl AsyncFn() -> S) -> Report {
        let open = async |suite: &Self| match suite.trouble {
            None => Bench::new(Arc::new(make_store().await), suite.schedule()),
            Some(trouble) => {
                let store = Troubled::new(make_store().await, trouble, suite.unit());
                Bench::new(Arc::new(store), suite.schedule())
            }
        };
        self.run(&laws::claim_store(), open).await
    }

    /// The laws of [`ClaimMany`] only.
    pub async fn claim_many<S: ClaimMany>(&self, make_store: impl AsyncFn() -> S) -> Report {
        let open = async |suite: &Self| match suite.trouble {
            None => ManyBench::new(Arc::new(make_store().await), suite.schedule()),
            Some(trouble) => {
                let store = Troubled::new(make_store().await, trouble, suite.unit());
                ManyBench::new(Arc::new(store), suite.schedule())
            }
        };
        self.run(&laws::claim_many(), open).await
    }

    /// The laws of [`ClaimAdmin`] only.
    pub async fn claim_admin<S: ClaimAdmin>(&self, make_store: impl AsyncFn() -> S) -> Report {
        let open = async |suite: &Self| match suite.trouble {
            None => AdminBench::new(Arc::new(make_store().await), suite.schedule()),
            Some(trouble) => {
                let store = Troubled::new(make_store().await, trouble, suite.unit());
                AdminBench::new(Arc::new(store), suite.schedule())
            }
        };
        self.run(&laws::claim_admin(), open).await
    }

    /// The laws of [`FenceStore`]. They need no time, and know no trouble.
    pub async fn fence_store<S: FenceStore>(&self, make_store: impl AsyncFn() -> S) -> Report {
        let open = async |_: &Self| {
            let store: Arc<dyn DynFenceStore> = Arc::new(make_store().await);
            FenceBench::new(store)
        };
        self.run(&laws::fence_store(), open).await
    }

    fn schedule(&self) -> Schedule {
        Schedule::new(self.time.clone())
    }

    fn unit(&self) -> Duration {
        match self.time {
            Time::Real { unit, .. } => unit,
            // The suite's clock stands still: delays pass in real time, and are short.
            Time::Manual(_) => Duration::from_millis(50),
        }
    }

    async fn run<C: OnTime>(&self, laws: &[&Law<C>], open: impl AsyncFn(&Self) -> C) -> Report {
        let began = Instant::now();
        let chosen = |law: &&&Law<C>| {
            self.only
                .as_ref()
                .is_none_or(|part| law.name.contains(part))
        };
        let laws: Vec<_> = laws.iter().filter(chosen).copied().collect();
        let at_once = match self.time {
            Time::Manual(_) => 1,
            Time::Real { .. } => self.at_once,
        };
        let mut verdicts: Vec<Verdict> = futures_util::stream::iter(&laws)
            .map(|law| self.judge(law, &open))
            .buffered(at_once)
            .collect()
            .await;
        for (law, verdict) in laws.iter().zip(&mut verdicts) {
            for retry in 1..=RETRIES {
                if *verdict != Verdict::Stalled {
                    break;
                }
                *verdict = self.slower(retry).judge(law, &open).await;
            }
        }
        let named = laws.iter().zip(verdicts);
        Report {
            outcomes: named
                .map(|(law, verdict)| Outcome {
                    law: law.name,
                    verdict,
                })
                .collect(),
            took: began.elapsed(),
        }
    }

    /// On a machine that is busy for long, more of the same would stall again.
    fn slower(&self, retry: usize) -> Self {
        let mut slower = self.clone();
        if let Time::Real { unit, .. } = &mut slower.time {
            *unit *= match retry {
                1 => 1,
                2 | 3 => 2,
                _ => 4,
            };
        }
        slower
    }

    async fn judge<C: OnTime>(&self, law: &Law<C>, open: &impl AsyncFn(&Self) -> C) -> Verdict {
        match (law.needs, &self.time, self.trouble) {
            (Needs::FirstAnswer, _, Some(Trouble::LoseReply)) => {
                return Verdict::Skipped("it is about the first answer, which is lost");
            }
            (Needs::ManualTime, Time::Real { .. }, _) => {
                return Verdict::Skipped("it sets the clock");
            }
            _ => {}
        }
        let bench = open(self).await;
        let Some(judged) = within(HUNG + 60 * self.unit(), (law.run)(&bench)).await else {
            return Verdict::Broken("a call did not come back".to_owned());
        };
        // Good or bad: what was seen out of time says nothing.
        if !bench.on_time() {
            return Verdict::Stalled;
        }
        match judged {
            Ok(()) => Verdict::Held,
            Err(Stop::Broken(seen)) => Verdict::Broken(seen),
            Err(Stop::Stalled) => Verdict::Stalled,
        }
    }
}

/// A bench that knows whether its last step is still in time.
pub(super) trait OnTime {
    fn on_time(&self) -> bool;
}

async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}
