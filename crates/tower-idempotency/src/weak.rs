//! Keys that are not likely to name an intent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tower_claim::http::KeyWeakness;
use tower_claim::{Code, Refusal};

use crate::telemetry::Meter;

/// What is done with a client's key that is not likely to name an intent: a time, a counter, a plain word. The
/// rule, and how often it is wrong, is at [`KeyWeakness`]. Keys that the server derives are not judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnWeakKey {
    /// Nothing is looked at.
    Allow,
    /// It is counted ([`Counts::weak_keys`](crate::Counts::weak_keys)), and the first one on each route is
    /// warned of (feature `tracing`). The default.
    #[default]
    Warn,
    /// It is refused: 400 `key-invalid`, with a reason.
    Refuse,
}

/// Whether a service has warned already. Made anew by each call of `layer()`, which axum does once per route;
/// clones of a service share it.
#[derive(Clone, Default)]
pub(crate) struct Warned(Arc<AtomicBool>);

impl Warned {
    pub(crate) fn warn(&self, weakness: KeyWeakness, path: &str, meter: &Meter) {
        if self.is_first() {
            meter.weak_key(weakness, path);
        }
    }

    fn is_first(&self) -> bool {
        // Read before it is written: the first warning is one, the requests after it are many.
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }
}

impl fmt::Debug for Warned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

pub(crate) fn refusal(weakness: KeyWeakness) -> Refusal {
    Refusal::new(Code::KeyInvalid)
        .with_reason(weakness.name())
        .with_detail(weakness.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clones_of_a_service_warn_once_and_another_route_warns_again() {
        let route = Warned::default();
        assert!(route.clone().is_first());
        assert!(!route.is_first());
        assert!(Warned::default().is_first());
    }
}
