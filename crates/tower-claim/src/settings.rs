//! The terms of one claim, written into its record.

use std::sync::Arc;
use std::time::Duration;

/// What happens to a claim whose lease lapses before it was finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum LapsePolicy {
    /// Another owner may take over, with a higher token. The default.
    #[default]
    TakeOver,
    /// The outcome becomes *unknown*: nobody runs again until an operator resolves it or the
    /// unfinished keep has passed. Needs an engine that does not forget what it answered.
    Hold,
}

/// The terms of one claim. The owner writes them into the record, and **the record's own terms judge
/// it, never those of who asks**.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long the hold lasts without a renewal.
    pub lease: Duration,
    /// How long after a lapse nobody is granted the key: time for the late effects of a crashed owner
    /// to arrive. Zero by default. A clean release does not cool.
    pub cooling: Duration,
    /// The key stays taken at least this long after the grant, even when it is released sooner. Zero by
    /// default.
    pub min_hold: Duration,
    /// What a lapse means.
    pub on_lapse: LapsePolicy,
    /// How long an unfinished record stays after its lapse: until then its fingerprint binds and an
    /// unknown outcome is answered as unknown.
    pub unfinished_keep: Duration,
    /// Shown to people: the layer's name and a short prefix of the key. Not the business key itself. Any text:
    /// every store keeps it whole, zeros too.
    pub label: Arc<str>,
}

impl Settings {
    /// Terms with this lease: no cooling, no minimum hold, takeover after a lapse, unfinished records
    /// kept for 24 hours, an empty label.
    pub fn new(lease: Duration) -> Self {
        Self {
            lease,
            cooling: Duration::ZERO,
            min_hold: Duration::ZERO,
            on_lapse: LapsePolicy::TakeOver,
            unfinished_keep: Duration::from_secs(24 * 60 * 60),
            label: Arc::from(""),
        }
    }
}
