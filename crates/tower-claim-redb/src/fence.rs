//! The guard, over the marks in the same file.

use tower_claim::store::{Admission, FenceStore};
use tower_claim::{Nonce, StoreError, Token};

use crate::RedbStore;
use crate::marks::{self, Mark};

/// The guard's marks, in the same file: durable and bounded. Made by [`RedbStore::fence_store`].
///
/// What a guard has answered outlives the process and the machine's power. A repeat of the mark's own
/// token and nonce, and what is refused, only reads.
///
/// Beyond [`guard_marks`](crate::RedbStoreBuilder::guard_marks) (a million by default) each new resource folds the
/// lowest mark into a floor, which is the mark of every resource that has none. So nothing at or below a mark is
/// ever admitted again, and what the floor refuses in vain (a token older than the lowest marks, at a resource
/// not seen for long) heals as any stale token does: release, new nonce, claim above
/// [`high_water`](FenceStore::high_water).
///
/// Keep the marks *with the data they protect*: this is the place for data of this machine.
#[derive(Debug, Clone)]
pub struct RedbFenceStore {
    store: RedbStore,
}

impl RedbFenceStore {
    pub(crate) fn new(store: RedbStore) -> Self {
        Self { store }
    }

    async fn mark(&self, resource: &str) -> Result<Mark, StoreError> {
        let resource = resource.to_owned();
        let inner = &self.store.inner;
        inner.read(move |txn| marks::look(txn, &resource)).await
    }

    async fn raise(&self, resource: &str, to: Mark) -> Result<Mark, StoreError> {
        let (resource, most) = (resource.to_owned(), self.store.inner.guard_marks);
        self.store
            .inner
            .write(move |book, _| marks::raise(book, &resource, to, most))
            .await
    }
}

impl FenceStore for RedbFenceStore {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        if let Some(admission) = self.mark(resource).await?.judge(token, nonce) {
            return Ok(admission);
        }
        let to = Mark {
            high: token,
            nonce: Some(nonce),
        };
        let stands = self.raise(resource, to).await?;
        // Another may have come first.
        Ok(stands
            .judge(token, nonce)
            .unwrap_or(Admission::Stale { high: stands.high }))
    }

    async fn raise_floor(&self, resource: &str, floor: Token) -> Result<Token, StoreError> {
        let to = Mark {
            high: floor,
            nonce: None,
        };
        Ok(self.raise(resource, to).await?.high)
    }

    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        Ok(self.mark(resource).await?.high)
    }
}
