//! When there is no point of no return.

use std::error::Error as StdError;
use std::fmt;

use tower_claim::{Code, NoPointOfNoReturn, Refusal, StoreError};

/// There is no point of no return here: **the work must not begin**. Answer with it: the caller is told why, and a
/// repeat finds out how it stands (with the feature `axum` it is a response; else see
/// [`to_refusal`](Self::to_refusal)).
#[derive(Debug)]
pub struct PointRefused {
    why: NoPointOfNoReturn,
}

impl PointRefused {
    /// Why.
    pub fn why(&self) -> &NoPointOfNoReturn {
        &self.why
    }

    /// The refusal to answer with: 409 `lease-lost` with the reason where the claim is lost; 500 `handler-panicked`
    /// where there can be none, which is a mistake of the program
    /// ([`claim_inside`](crate::IdempotencyBuilder::claim_inside)); else 503 `store-unavailable`, without `Retry-After`
    /// where the store may forget, which no repeat changes. Put [`NoEffect`](crate::NoEffect) into the response's
    /// extensions, so that a repeat runs.
    pub fn to_refusal(&self) -> Refusal {
        match &self.why {
            NoPointOfNoReturn::Lost(loss) => {
                Refusal::new(Code::LeaseLost).with_reason(loss.as_str())
            }
            NoPointOfNoReturn::Store(error @ StoreError::Unsupported(_)) => {
                Refusal::new(Code::HandlerPanicked).with_detail(error.to_string())
            }
            // Whoever comes back meets the same settings.
            NoPointOfNoReturn::Forgetful { .. } => Refusal::new(Code::StoreUnavailable)
                .with_detail(self.why.to_string())
                .without_retry_after(),
            _ => Refusal::new(Code::StoreUnavailable).with_detail(self.why.to_string()),
        }
    }
}

impl From<NoPointOfNoReturn> for PointRefused {
    fn from(why: NoPointOfNoReturn) -> Self {
        Self { why }
    }
}

impl fmt::Display for PointRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl StdError for PointRefused {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.why.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_may_forget_is_named_with_the_mend_and_nobody_is_asked_back() {
        let forgetful = PointRefused::from(NoPointOfNoReturn::Forgetful { engine: "redis" });
        let refusal = forgetful.to_refusal();
        assert_eq!(refusal.code(), Code::StoreUnavailable);
        assert_eq!(refusal.retry_after_secs(), None);
        let detail = refusal.detail().unwrap();
        for word in [
            "`redis`",
            "durable_single_node()",
            "trust_forgetful_store()",
        ] {
            assert!(detail.contains(word), "{detail}");
        }
        let down = StoreError::unavailable(std::io::Error::other("down"));
        let down = PointRefused::from(NoPointOfNoReturn::Store(down)).to_refusal();
        assert!(down.retry_after_secs().is_some());
    }
}
