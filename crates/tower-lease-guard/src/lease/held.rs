//! Claims are not re-entrant. This knows what the request that is being polled holds already, to **say**
//! so at once instead of letting it wait for itself. It never lets anything pass: what is not found here is
//! refused by the store, as busy.

use std::future::Future;
use std::sync::Arc;

use http::Extensions;
use tower_claim::{Key, Nonce};

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

/// In a request's extensions: the leases taken for this very request on its way in. It moves along with the
/// request; a **copy** of the extensions has an empty one. So a layer that stands around a request twice is
/// told from a call that the handler makes itself, with its own request's extensions.
#[derive(Debug, Default)]
struct OnItsWay(Vec<Nonce>);

impl Clone for OnItsWay {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The request goes on under this lease.
pub(super) fn go_on_under(lease: &Lease, request: &mut Extensions) {
    request.insert(lease.clone());
    let on_its_way: &mut OnItsWay = request.get_or_insert_default();
    on_its_way.0.push(lease.nonce());
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

pub(super) fn meet(layer: u64, keys: &[Key], request: &Extensions) -> Meeting {
    let outer = request.get::<Lease>().into_iter().flat_map(Lease::chain);
    // A copy may outlive its lease; a lost one holds nothing.
    let mut standing = outer.filter(|lease| lease.check().is_ok());
    let holds = |lease: &Lease, key: &Key| lease.keys().contains(key);
    if let Some(first) = standing.find(|lease| keys.iter().any(|key| holds(lease, key))) {
        let ours = |on_its_way: &OnItsWay| on_its_way.0.contains(&first.nonce());
        // Other keys than before are another piece of work.
        let same = first.layer() == layer
            && request.get().is_some_and(ours)
            && keys.iter().all(|key| holds(first, key));
        return if same {
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
