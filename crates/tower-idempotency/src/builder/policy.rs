//! Settings: where the policy is.

use super::IdempotencyBuilder;

impl IdempotencyBuilder {
    /// Where the [policy](crate::Policy) of this layer is published: an absolute address, or a path. Each refusal carries
    /// it as `Link: <…>; rel="describedby"`, as the IETF draft on the `Idempotency-Key` field shows it. Default: no link.
    ///
    /// ```
    /// use tower_claim::MemoryStore;
    /// use tower_idempotency::{IdempotencyLayer, PolicyService};
    ///
    /// let once = IdempotencyLayer::builder(MemoryStore::new())
    ///     .policy_at("/idempotency-policy")
    ///     .build()?;
    /// // axum: `.route_service("/idempotency-policy", policy)`
    /// let policy = PolicyService::new(&once);
    /// # let _ = policy;
    /// # Ok::<(), tower_claim::ConfigError>(())
    /// ```
    pub fn policy_at(mut self, uri: impl Into<String>) -> Self {
        self.policy_at = Some(uri.into());
        self
    }
}
