//! Claims are not re-entrant. This knows what the request that is being polled holds already, to **say**
//! so at once instead of letting it wait for itself. It never lets anything pass: what is not found here is
//! refused by the store, as busy.

use std::future::Future;
use std::sync::Arc;

use tower_claim::Key;

use super::handle::Lease;

tokio::task_local! {
    static HELD: Arc<Held>;
}

/// The keys of a lease, and those around it. Does not keep the lease alive.
#[derive(Debug)]
pub(super) struct Held {
    keys: Box<[Key]>,
    around: Option<Arc<Held>>,
}

impl Held {
    pub(super) fn under(lease: &Lease) -> Arc<Self> {
        Arc::new(Self {
            keys: lease.keys().into(),
            around: HELD.try_with(Arc::clone).ok(),
        })
    }

    /// Runs the work of a lease: calls nested in it find its keys.
    pub(super) fn scope<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        HELD.scope(self, work)
    }

    /// As [`scope`](Self::scope), for one poll.
    pub(super) fn enter<T>(self: &Arc<Self>, poll: impl FnOnce() -> T) -> T {
        HELD.sync_scope(self.clone(), poll)
    }
}

/// What a request that wants keys has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meeting {
    /// None of them.
    Free,
    /// All of them, by this very layer: it stands around the request twice.
    SameLayer,
    /// One of them, by another layer, or in the call that this one is nested in.
    HeldByCaller,
}

/// `outer` is the lease in the request's extensions.
pub(super) fn meet(layer: u64, keys: &[Key], outer: Option<&Lease>) -> Meeting {
    let mut leases = outer.into_iter().flat_map(Lease::chain);
    let holds = |lease: &Lease, key: &Key| lease.keys().contains(key);
    if let Some(first) = leases.find(|lease| keys.iter().any(|key| holds(lease, key))) {
        // Other keys than before are another piece of work: a nested call that kept the extensions.
        let all = keys.iter().all(|key| holds(first, key));
        return if first.layer() == layer && all {
            Meeting::SameLayer
        } else {
            Meeting::HeldByCaller
        };
    }
    let mut around = HELD.try_with(Arc::clone).ok();
    while let Some(held) = around {
        if keys.iter().any(|key| held.keys.contains(key)) {
            return Meeting::HeldByCaller;
        }
        around = held.around.clone();
    }
    Meeting::Free
}
