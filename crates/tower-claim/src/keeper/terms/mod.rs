//! The terms a layer claims under: the record's settings, and how the owner keeps the hold alive.

use std::sync::Arc;
use std::time::Duration;

mod builder;

pub use builder::TermsBuilder;

use super::timing::Timing;
use crate::store::Capabilities;
use crate::{ConfigError, LapsePolicy, Settings};

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
    lapses_unheard_takeovers: bool,
}

impl Terms {
    /// Starts terms with this lease: how long a hold lasts without a renewal.
    pub fn builder(lease: Duration) -> TermsBuilder {
        TermsBuilder::new(lease)
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

    /// The same terms, under which a takeover that nobody hears of lapses: where a claim's future is dropped amid its
    /// call, or its answers are lost, what it may have been granted is given back; with this, not where it took over
    /// from a lapsed owner. Given back, the key would be free, and who comes next would not know that there was an owner
    /// before, nor be bound by its fingerprint. So it stays busy for a lease, and the next one takes over in its turn.
    ///
    /// Such a clean-up takes one trip to the store more, or two. Default: everything is given back at once.
    ///
    /// ```
    /// use tower_claim::Terms;
    ///
    /// let work_with_effects = Terms::default().lapse_unheard_takeovers();
    /// # let _ = work_with_effects;
    /// ```
    #[must_use]
    pub fn lapse_unheard_takeovers(&self) -> Self {
        let mut inner = (*self.0).clone();
        inner.lapses_unheard_takeovers = true;
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

    /// Whether Hold and the point of no return may rely on this engine: it does not forget, or is
    /// [trusted](TermsBuilder::trust_forgetful_store) all the same.
    pub fn trusts(&self, engine: &Capabilities) -> bool {
        !engine.may_forget() || self.0.trusts_forgetful_store
    }

    pub(super) fn lapses_unheard_takeovers(&self) -> bool {
        self.0.lapses_unheard_takeovers
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
            lapses_unheard_takeovers: false,
        }))
    }
}
