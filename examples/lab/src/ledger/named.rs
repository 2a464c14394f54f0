//! The marks of one namespace: labs with different namespaces over one store do not meet.

use std::sync::Arc;

use tower_claim::store::Admission;
use tower_claim::{DynFenceStore, FenceStore, Namespace, Nonce, StoreError, Token};

/// The resource that a ledger is to the guard. Escaped: a name may have what an engine's text may not (PostgreSQL: NUL).
pub(super) fn name(namespace: &Namespace, id: &str) -> String {
    format!("{}/ledger/{}", namespace.as_str(), id.escape_default())
}

/// A guard's store whose resources are ledgers of one namespace.
#[derive(Debug, Clone)]
pub(super) struct Named {
    fence: Arc<dyn DynFenceStore>,
    namespace: Namespace,
}

impl Named {
    pub(super) fn new(fence: Arc<dyn DynFenceStore>, namespace: &Namespace) -> Self {
        let namespace = namespace.clone();
        Self { fence, namespace }
    }

    fn name(&self, id: &str) -> String {
        name(&self.namespace, id)
    }
}

impl FenceStore for Named {
    async fn admit(&self, id: &str, token: Token, nonce: Nonce) -> Result<Admission, StoreError> {
        self.fence.dyn_admit(&self.name(id), token, nonce).await
    }

    async fn raise_floor(&self, id: &str, floor: Token) -> Result<Token, StoreError> {
        self.fence.dyn_raise_floor(&self.name(id), floor).await
    }

    async fn high_water(&self, id: &str) -> Result<Token, StoreError> {
        self.fence.dyn_high_water(&self.name(id)).await
    }
}
