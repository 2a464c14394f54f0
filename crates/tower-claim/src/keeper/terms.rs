//! The terms a layer claims under: the record's settings, and how the owner keeps the hold alive.

use std::sync::Arc;
use std::time::Duration;

use super::timing::Timing;
use crate::store::Capabilities;
use crate::{ConfigError, LapsePolicy, Settings};

const SHORTEST: Duration = Duration::from_millis(10);
const SHORTEST_RENEWED: Duration = Duration::from_millis(100);
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(600);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(2);
const LONGEST_STOP_BUDGET: Duration = Duration::from_millis(500);

/// Whether a hold is renewed, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Renewal {
    /// Never: the hold ends at its lease.
    Off,
    /// As long as the claim is there, up to `max_hold`. A hung job keeps it that long. The default.
    #[default]
    Always,
    /// Only while the work moves: no [`progress`](super::Claim::progress) and no
    /// [`touch`](super::Claim::touch) for this long ends the hold as
    /// [`Loss::Stalled`](super::Loss::Stalled). Looked at with each beat.
    Progress {
        /// How long the work may stand still.
        stall_after: Duration,
    },
}

/// The terms of a claim: what is written into its record ([`Settings`]), and how its owner renews it.
/// Cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use tower_claim::{Renewal, Terms};
///
/// let terms = Terms::builder(Duration::from_secs(10))
///     .renewal(Renewal::Progress { stall_after: Duration::from_secs(30) })
///     .label("lease accounts")
///     .build()?;
/// assert_eq!(terms.lease(), Duration::from_secs(10));
///
/// let refused = Terms::builder(Duration::from_millis(50)).build().unwrap_err();
/// assert!(refused.to_string().contains("100ms"), "{refused}");
/// # Ok::<(), tower_claim::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Terms(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    settings: Settings,
    renewal: Renewal,
    max_hold: Duration,
    timing: Timing,
    trusts_forgetful_store: bool,
}

impl Terms {
    /// Starts terms with this lease: how long a hold lasts without a renewal.
    pub fn builder(lease: Duration) -> TermsBuilder {
        TermsBuilder {
            settings: Settings::new(lease),
            renewal: Renewal::default(),
            max_hold: None,
            attempt_timeout: None,
            stop_budget: None,
            trusts_forgetful_store: false,
        }
    }

    /// What is written into the record.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The lease asked for.
    pub fn lease(&self) -> Duration {
        self.0.settings.lease
    }

    /// Whether holds are renewed.
    pub fn renewal(&self) -> Renewal {
        self.0.renewal
    }

    /// The cap on a hold's whole length.
    pub fn max_hold(&self) -> Duration {
        self.0.max_hold
    }

    /// How long one store call may take.
    pub fn attempt_timeout(&self) -> Duration {
        self.0.timing.attempt
    }

    /// How long before the lapse the owner stops.
    pub fn stop_budget(&self) -> Duration {
        self.0.timing.stop_budget
    }

    /// The same terms under another label, for instance one with a short prefix of the key.
    #[must_use]
    pub fn labelled(&self, label: impl Into<Arc<str>>) -> Self {
        let mut inner = (*self.0).clone();
        inner.settings.label = label.into();
        Self(Arc::new(inner))
    }

    /// Whether an engine can keep these terms. A layer asks when it is built.
    ///
    /// # Errors
    ///
    /// [`LapsePolicy::Hold`] on an engine that may forget what it answered, unless
    /// [`TermsBuilder::trust_forgetful_store`] was set; a lease shorter than the engine's smallest span
    /// of time.
    pub fn check_against(&self, engine: &Capabilities) -> Result<(), ConfigError> {
        if self.0.settings.on_lapse == LapsePolicy::Hold && !self.trusts(engine) {
            return Err(ConfigError::new(
                "on_lapse",
                format!(
                    "`{}` may forget what it answered, so it cannot hold an unknown outcome: use \
                     LapsePolicy::TakeOver, another store, or trust_forgetful_store()",
                    engine.engine
                ),
            ));
        }
        if self.lease() < engine.time_unit {
            return Err(ConfigError::new(
                "lease",
                format!(
                    "`{}` counts in steps of {:?}: use a lease of at least that",
                    engine.engine, engine.time_unit
                ),
            ));
        }
        Ok(())
    }

    /// Whether Hold and the point of no return may rely on this engine.
    pub(super) fn trusts(&self, engine: &Capabilities) -> bool {
        !engine.may_forget || self.0.trusts_forgetful_store
    }

    pub(super) fn timing(&self) -> Timing {
        self.0.timing
    }
}

impl Default for Terms {
    /// A lease of 30 seconds, everything else as [`TermsBuilder`] has it.
    fn default() -> Self {
        let lease = DEFAULT_LEASE;
        Self(Arc::new(Inner {
            settings: Settings::new(lease),
            renewal: Renewal::default(),
            max_hold: DEFAULT_MAX_HOLD,
            timing: Timing {
                lease,
                attempt: LONGEST_ATTEMPT,
                stop_budget: LONGEST_STOP_BUDGET,
            },
            trusts_forgetful_store: false,
        }))
    }
}

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
    /// Whether holds are renewed. Default: [`Renewal::Always`].
    #[must_use]
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = renewal;
        self
    }

    /// The cap on a hold's whole length, renewed or not, whatever the lapse policy: after it the hold is
    /// lost as [`Loss::Expired`](super::Loss::Expired). Default: 10 minutes, or the lease where that is
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
    use super::*;

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
        engine.may_forget = true;
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
