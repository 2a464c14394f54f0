//! The marks of one namespace: labs with different namespaces over one store do not meet.

use std::sync::Arc;

use tower_claim::store::Admission;
use tower_claim::{DynFenceStore, FenceStore, Namespace, Nonce, StoreError, Token};

/// A guard's store whose resources are named `NAMESPACE/ledger/ID`.
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
        format!("{}/ledger/{id}", self.namespace.as_str())
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
