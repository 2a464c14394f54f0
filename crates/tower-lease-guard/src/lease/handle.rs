//! The lease as the handler holds it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tower_claim::store::TookOver;
use tower_claim::{Claim, Code, Key, Loss, Nonce, Refusal, Token};

use super::live::Live;
use crate::token::FencingToken;

/// The lease that a request works under. In the request's extensions; with the feature `axum` an
/// extractor. Cheap to clone.
///
/// The lease lasts until the response has ended **and the last clone is gone**: a handler that goes on in
/// a task of its own takes a clone along. The stop point ends it all the same: then the request's future
/// is dropped, and [`check`](Self::check) fails in the task.
///
/// What a lease cannot do is stop a paused process from writing when it wakes. Show [`fence`](Self::fence)
/// to the resource with each write, and let it compare.
#[derive(Clone)]
pub struct Lease {
    inner: Arc<Inner>,
}

struct Inner {
    // Dropped in this order: first the claim goes to the keeper, then the layer's count goes down.
    claim: Claim,
    _live: Live,
    layer: u64,
    resources: Arc<[Arc<str>]>,
    outer: Option<Lease>,
}

impl Lease {
    pub(super) fn new(
        claim: Claim,
        live: Live,
        layer: u64,
        resources: Arc<[Arc<str>]>,
        outer: Option<Lease>,
    ) -> Self {
        debug_assert!(!resources.is_empty());
        Self {
            inner: Arc::new(Inner {
                claim,
                _live: live,
                layer,
                resources,
                outer,
            }),
        }
    }

    /// The resources this lease is on, in the order the key function named them.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.inner.resources.iter().map(|name| &**name)
    }

    /// The fencing token: larger than that of every lease on these resources before. One for all of them.
    pub fn token(&self) -> Token {
        self.inner.claim.token()
    }

    /// The nonce of this lease. One for all its resources.
    pub fn nonce(&self) -> Nonce {
        self.inner.claim.nonce()
    }

    /// What a write shows to the guard of the resource: of the first one, where there are several.
    pub fn fence(&self) -> FencingToken {
        self.fence_of(&self.inner.resources[0])
    }

    /// What a write to `resource` shows to its guard; `None` if this lease is not on it.
    pub fn fence_for(&self, resource: &str) -> Option<FencingToken> {
        let mut names = self.inner.resources.iter();
        let name = names.find(|name| &***name == resource)?;
        Some(self.fence_of(name))
    }

    /// One token per resource.
    pub fn fences(&self) -> impl Iterator<Item = FencingToken> {
        let names = self.inner.resources.iter();
        names.map(|name| self.fence_of(name))
    }

    fn fence_of(&self, resource: &Arc<str>) -> FencingToken {
        FencingToken::from_valid(resource.clone(), self.token(), self.nonce())
    }

    /// Whether the lease still stands, by the clock, without a store trip. Ask before each side effect.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`], which becomes the response 409 `lease-lost`.
    pub fn check(&self) -> Result<(), LeaseLost> {
        self.inner.claim.check().map_err(LeaseLost::new)
    }

    /// The work moved, and is now at `n`, a number of its own: the next owner finds it in
    /// [`took_over`](Self::took_over). Under `Renewal::Progress` this keeps the lease alive, as do stages
    /// of the response and its frames.
    pub fn progress(&self, n: u64) {
        self.inner.claim.progress(n);
    }

    /// Resolves when the lease is lost, at the latest at the stop point before it can lapse. Does not keep
    /// it alive.
    pub fn lost(&self) -> impl Future<Output = LeaseLost> + Send + 'static {
        let lost = self.inner.claim.lost();
        async move { LeaseLost::new(lost.await) }
    }

    /// Resolves when an operator asks the owner to stop, and when the lease is over: either way it is time
    /// to stop. Does not keep it alive.
    pub fn revoke_requested(&self) -> impl Future<Output = ()> + Send + 'static {
        self.inner.claim.revoke_requested()
    }

    /// The owner before, when its lease lapsed and this one took over.
    pub fn took_over(&self) -> Option<&TookOver> {
        self.inner.claim.took_over()
    }

    /// The lease of the next lease layer outside, where there is one.
    pub fn outer(&self) -> Option<&Lease> {
        self.inner.outer.as_ref()
    }

    /// This lease, or one of a layer outside, that is on `resource`.
    pub fn find(&self, resource: &str) -> Option<&Lease> {
        self.chain()
            .find(|lease| lease.resources().any(|name| name == resource))
    }

    /// This lease and those of the layers outside.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &Lease> {
        std::iter::successors(Some(self), |lease| lease.outer())
    }

    pub(super) fn layer(&self) -> u64 {
        self.inner.layer
    }

    pub(super) fn keys(&self) -> &[Key] {
        self.inner.claim.keys()
    }

    /// The response moved.
    pub(super) fn touch(&self) {
        self.inner.claim.touch();
    }

    pub(super) fn lost_claim(&self) -> impl Future<Output = Loss> + Send + 'static {
        self.inner.claim.lost()
    }

    /// Gives up the layer's own clone. When it is the last, ready once the store has answered the release;
    /// otherwise at once, and the lease goes with the last clone.
    ///
    /// Dropped at any await, the keeper releases.
    pub(super) async fn end(self) {
        let Some(inner) = Arc::into_inner(self.inner) else {
            return;
        };
        let Inner {
            claim,
            _live,
            outer,
            ..
        } = inner;
        drop(outer);
        if let Err(error) = claim.release().await {
            // The keeper goes on with it, and the lease lapses in any case.
            crate::report::release_failed(&error);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("keys", &self.keys())
            .field("token", &self.token())
            .field("check", &self.check())
            .finish_non_exhaustive()
    }
}

/// The lease was lost while the work was going on: stop.
///
/// It converts into a [`Refusal`], and with the feature `axum` into a response: 409 `lease-lost` with the
/// reason `expired`, `stolen`, `broken`, `stalled` or `store-unreachable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseLost {
    loss: Loss,
}

impl LeaseLost {
    pub(crate) fn new(loss: Loss) -> Self {
        Self { loss }
    }

    /// Why: an outage, a take-over, an operator, or work that stood still.
    pub fn reason(&self) -> Loss {
        self.loss
    }

    /// The refusal.
    pub fn refusal(&self) -> Refusal {
        Refusal::new(Code::LeaseLost)
            .with_reason(self.loss.as_str())
            .with_detail(self.loss.to_string())
    }
}

impl From<LeaseLost> for Refusal {
    fn from(lost: LeaseLost) -> Self {
        lost.refusal()
    }
}

impl fmt::Display for LeaseLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lease is lost: {}", self.loss)
    }
}

impl std::error::Error for LeaseLost {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.loss)
    }
}
