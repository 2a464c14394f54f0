//! Refusals: responses made by a layer instead of the inner service.

use std::borrow::Cow;
use std::time::Duration;

use crate::Code;

/// A refusal, before it becomes a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    code: Code,
    detail: Option<Cow<'static, str>>,
    reason: Option<&'static str>,
    retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal with its code's defaults: no detail; `Retry-After` of one second where the code asks for
    /// a retry.
    pub const fn new(code: Code) -> Self {
        let retry_after = if code.asks_to_retry() {
            Some(Duration::from_secs(1))
        } else {
            None
        };
        Self {
            code,
            detail: None,
            reason: None,
            retry_after,
        }
    }

    /// What happened this time, for people. Never put secrets or whole keys here.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Tells apart what shares a code, for machines: the `reason` member. None by default.
    #[must_use]
    pub const fn with_reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// When to come back.
    #[must_use]
    pub const fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Does not ask to come back, where that would change nothing: a mistake of the program or its settings.
    ///
    /// ```
    /// use tower_claim::{Code, Refusal};
    ///
    /// let misconfigured = Refusal::new(Code::StoreUnavailable).without_retry_after();
    /// assert_eq!(misconfigured.retry_after_secs(), None);
    /// ```
    #[must_use]
    pub const fn without_retry_after(mut self) -> Self {
        self.retry_after = None;
        self
    }

    /// Why.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// What happened this time.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// What tells apart refusals with one code.
    pub const fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// The value of `Retry-After`: whole seconds, rounded up, 1 to 60.
    pub fn retry_after_secs(&self) -> Option<u64> {
        let after = self.retry_after?;
        // A caller's hook may say any time, also the longest there is.
        let up = after
            .as_secs()
            .saturating_add(u64::from(after.subsec_nanos() > 0));
        Some(up.clamp(1, 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_name_of_its_own() {
        let mut names: Vec<_> = Code::ALL.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }

    #[test]
    fn retry_after_is_rounded_up_and_kept_within_1_and_60() {
        let secs = |ms| {
            Refusal::new(Code::Leased)
                .with_retry_after(Duration::from_millis(ms))
                .retry_after_secs()
        };
        assert_eq!(secs(0), Some(1));
        assert_eq!(secs(1_001), Some(2));
        assert_eq!(secs(2_000), Some(2));
        assert_eq!(secs(90_000), Some(60));
        let longest = Refusal::new(Code::Leased).with_retry_after(Duration::MAX);
        assert_eq!(longest.retry_after_secs(), Some(60));
        assert_eq!(Refusal::new(Code::KeyReused).retry_after_secs(), None);
    }
}
