//! What a browser's cross-origin questions need: header names, for any CORS layer.

use http::HeaderName;
use http::header::{LINK, RETRY_AFTER};

use super::{Asked, KeyLookup, PREFER, PREFERENCE_APPLIED};
use crate::cors::{headers_of_keys, without_repeats};

/// # Cross-origin questions
impl KeyLookup {
    /// The request headers that a browser's script must be allowed to send when it asks: `Prefer`, and those of the
    /// layer's keys where they are looked for there. Add what your authentication needs, such as `Authorization`.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_http::cors::CorsLayer;
    /// use tower_idempotency::{IdempotencyLayer, KeyLookup};
    ///
    /// let once = IdempotencyLayer::new(MemoryStore::new());
    /// let lookup = KeyLookup::new(&once);
    /// let cors = CorsLayer::new()
    ///     .allow_headers(lookup.cors_allow_headers())
    ///     .expose_headers(lookup.cors_expose_headers());
    /// # let _ = cors;
    /// ```
    pub fn cors_allow_headers(&self) -> Vec<HeaderName> {
        let mut names = vec![PREFER];
        if let Asked::LikeTheLayer = self.inner.source {
            names.extend(headers_of_keys(&self.inner.shared.entry));
        }
        without_repeats(names)
    }

    /// The response headers that a browser's script must be let see: `Preference-Applied`, `Retry-After`, and `Link`
    /// where refusals [link to the policy](crate::IdempotencyBuilder::policy_at). An example is at
    /// [`cors_allow_headers`](Self::cors_allow_headers).
    pub fn cors_expose_headers(&self) -> Vec<HeaderName> {
        let mut names = vec![PREFERENCE_APPLIED, RETRY_AFTER];
        if self.inner.shared.policy_link.is_some() {
            names.push(LINK);
        }
        names
    }
}
