//! Settings of terms, and which of them are refused.

use std::sync::Arc;
use std::time::Duration;

use super::super::timing::Timing;
use super::{DEFAULT_MAX_HOLD, Inner, LONGEST_ATTEMPT, LONGEST_STOP_BUDGET, Renewal, Terms};
use crate::{ConfigError, LapsePolicy, Settings};

const SHORTEST: Duration = Duration::from_millis(10);
const SHORTEST_RENEWED: Duration = Duration::from_millis(100);

/// Builds [`Terms`]. Made by [`Terms::builder`].
#[derive(Debug, Clone)]
pub struct TermsBuilder {
    settings: Settings,
    renewal: Renewal,
    max_hold: Option<Duration>,
    attempt_timeout: Option<Duration>,
    stop_budget: Option<Duration>,
    trusts_forgetful_store: bool,
}

impl TermsBuilder {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            settings: Settings::new(lease),
            renewal: Renewal::default(),
            max_hold: None,
            attempt_timeout: None,
            stop_budget: None,
            trusts_forgetful_store: false,
        }
    }

    /// Whether holds are renewed. Default: [`Renewal::Always`].
    #[must_use]
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = renewal;
        self
    }

    /// The cap on a hold's whole length, renewed or not, whatever the lapse policy: after it the hold is
    /// lost as [`Loss::Expired`](crate::Loss::Expired). Default: 10 minutes, or the lease where that is
    /// longer.
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// See [`Settings::cooling`]. Default: zero, off.
    #[must_use]
    pub fn cooling(mut self, cooling: Duration) -> Self {
        self.settings.cooling = cooling;
        self
    }

    /// See [`Settings::min_hold`]. Default: zero, off.
    #[must_use]
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.settings.min_hold = min_hold;
        self
    }

    /// What a lapse means. Default: [`LapsePolicy::TakeOver`].
    #[must_use]
    pub fn on_lapse(mut self, policy: LapsePolicy) -> Self {
        self.settings.on_lapse = policy;
        self
    }

    /// See [`Settings::unfinished_keep`]. Default: 24 hours.
    #[must_use]
    pub fn unfinished_keep(mut self, keep: Duration) -> Self {
        self.settings.unfinished_keep = keep;
        self
    }

    /// Shown to people: the layer's name, perhaps a short prefix of the key. Default: empty.
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.settings.label = label.into();
        self
    }

    /// How long one store call may take before its answer counts as missing. Default: a sixth of the
    /// lease, 2 s at most.
    #[must_use]
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// How long before the lapse the owner is told to stop: the time its work needs to do so. Zero: none.
    /// Default: a twentieth of the lease, 500 ms at most.
    #[must_use]
    pub fn stop_budget(mut self, budget: Duration) -> Self {
        self.stop_budget = Some(budget);
        self
    }

    /// Allows [`LapsePolicy::Hold`] and the point of no return on an engine that may forget what it
    /// answered. After a failover of such an engine work may then run twice. Default: not allowed.
    #[must_use]
    pub fn trust_forgetful_store(mut self) -> Self {
        self.trusts_forgetful_store = true;
        self
    }

    /// The terms.
    ///
    /// # Errors
    ///
    /// A lease under 10 ms, or under 100 ms with renewal; one that leaves no room for two beats before
    /// the stop point; a zero where zero does not mean off; a `max_hold` below the lease. The text says
    /// what to write instead.
    pub fn build(self) -> Result<Terms, ConfigError> {
        let lease = self.settings.lease;
        let renewed = self.renewal != Renewal::Off;
        if lease < SHORTEST {
            return Err(too_short("lease", lease, SHORTEST));
        }
        if renewed && lease < SHORTEST_RENEWED {
            return Err(ConfigError::new(
                "lease",
                format!(
                    "{lease:?} is too short to be renewed: use at least {SHORTEST_RENEWED:?}, or \
                     Renewal::Off"
                ),
            ));
        }
        let timing = Timing {
            lease,
            attempt: self
                .attempt_timeout
                .unwrap_or((lease / 6).min(LONGEST_ATTEMPT)),
            stop_budget: self
                .stop_budget
                .unwrap_or((lease / 20).min(LONGEST_STOP_BUDGET)),
        };
        if timing.attempt.is_zero() {
            return Err(ConfigError::new(
                "attempt_timeout",
                "zero leaves no time for an answer: use a sixth of the lease, or leave it out",
            ));
        }
        if renewed && !timing.leaves_room_for_two_beats() {
            return Err(ConfigError::new(
                if self.stop_budget.is_some() {
                    "stop_budget"
                } else {
                    "attempt_timeout"
                },
                format!(
                    "a lease of {lease:?} leaves no room for two beats before the stop point with an \
                     attempt timeout of {:?} and a stop budget of {:?}: make these shorter or the \
                     lease longer",
                    timing.attempt, timing.stop_budget
                ),
            ));
        }
        if timing.attempt + timing.stop_budget > lease / 2 && !renewed {
            return Err(ConfigError::new(
                "attempt_timeout",
                format!(
                    "attempt timeout and stop budget together ({:?}) take more than half of a lease of \
                     {lease:?}: make them shorter or the lease longer",
                    timing.attempt + timing.stop_budget
                ),
            ));
        }
        if let Renewal::Progress { stall_after } = self.renewal
            && stall_after < lease / 2
        {
            return Err(too_short("renewal: stall_after", stall_after, lease / 2));
        }
        let max_hold = self.max_hold.unwrap_or(DEFAULT_MAX_HOLD.max(lease));
        if max_hold < lease {
            return Err(too_short("max_hold", max_hold, lease));
        }
        if self.settings.on_lapse == LapsePolicy::Hold && self.settings.unfinished_keep < lease {
            return Err(too_short(
                "unfinished_keep",
                self.settings.unfinished_keep,
                lease,
            ));
        }
        Ok(Terms(Arc::new(Inner {
            settings: self.settings,
            renewal: self.renewal,
            max_hold,
            timing,
            trusts_forgetful_store: self.trusts_forgetful_store,
            lapses_unheard_takeovers: false,
        })))
    }
}

fn too_short(setting: &'static str, is: Duration, least: Duration) -> ConfigError {
    ConfigError::new(
        setting,
        format!("{is:?} is too short: use at least {least:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::DEFAULT_LEASE;
    use super::*;
    use crate::store::{Capabilities, Event, Promise};

    const MS: Duration = Duration::from_millis(1);

    fn refused(builder: TermsBuilder, setting: &str) {
        let error = builder.build().unwrap_err();
        assert_eq!(error.setting(), setting, "{error}");
    }

    #[test]
    fn a_lease_that_cannot_beat_twice_is_refused() {
        assert!(Terms::builder(100 * MS).build().is_ok());
        refused(Terms::builder(99 * MS), "lease");
        assert!(
            Terms::builder(10 * MS)
                .renewal(Renewal::Off)
                .build()
                .is_ok()
        );
        refused(Terms::builder(9 * MS).renewal(Renewal::Off), "lease");
        refused(
            Terms::builder(1000 * MS).attempt_timeout(300 * MS),
            "attempt_timeout",
        );
        refused(
            Terms::builder(1000 * MS).stop_budget(400 * MS),
            "stop_budget",
        );
        refused(
            Terms::builder(1000 * MS)
                .renewal(Renewal::Off)
                .attempt_timeout(600 * MS),
            "attempt_timeout",
        );
    }

    #[test]
    fn the_default_terms_are_what_the_builder_makes_of_30_seconds() {
        let built = Terms::builder(DEFAULT_LEASE).build().unwrap();
        assert_eq!(format!("{:?}", Terms::default()), format!("{built:?}"));
    }

    #[test]
    fn zero_is_refused_where_it_does_not_mean_off() {
        let s = 1000 * MS;
        let zero = Duration::ZERO;
        refused(Terms::builder(zero), "lease");
        refused(Terms::builder(s).max_hold(zero), "max_hold");
        refused(Terms::builder(s).attempt_timeout(zero), "attempt_timeout");
        refused(
            Terms::builder(s).renewal(Renewal::Progress { stall_after: zero }),
            "renewal: stall_after",
        );
        refused(
            Terms::builder(s)
                .on_lapse(LapsePolicy::Hold)
                .unfinished_keep(zero),
            "unfinished_keep",
        );
        assert!(
            Terms::builder(s)
                .cooling(zero)
                .min_hold(zero)
                .stop_budget(zero)
                .build()
                .is_ok()
        );
    }

    #[test]
    fn hold_is_refused_where_the_engine_may_forget() {
        let hold = Terms::builder(1000 * MS).on_lapse(LapsePolicy::Hold);
        let mut engine = Capabilities::in_process("scripted");
        assert!(hold.clone().build().unwrap().check_against(&engine).is_ok());
        engine = engine.with_weakened(Event::Failover, &[Promise::OneResult]);
        let error = hold.clone().build().unwrap().check_against(&engine);
        assert_eq!(error.unwrap_err().setting(), "on_lapse");
        let trusting = hold.trust_forgetful_store().build().unwrap();
        assert!(trusting.check_against(&engine).is_ok());
        let takes_over = Terms::builder(1000 * MS).build().unwrap();
        assert!(takes_over.check_against(&engine).is_ok());
    }

    #[test]
    fn a_lease_below_the_engines_unit_is_refused() {
        let mut engine = Capabilities::in_process("scripted");
        engine.time_unit = Duration::from_secs(1);
        let terms = Terms::builder(500 * MS).build().unwrap();
        assert_eq!(terms.check_against(&engine).unwrap_err().setting(), "lease");
    }
}
