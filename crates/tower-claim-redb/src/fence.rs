//! The guard's marks.

use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use tower_claim::store::{Admission, FenceStore};
use tower_claim::{Nonce, StoreError, Token};

use crate::RedbStore;
use crate::book::Book;
use crate::error::Trouble;

/// The mark of each resource: the token (8 bytes, big-endian), and the nonce unless an operator raised it.
const MARKS: TableDefinition<'static, &'static str, &'static [u8]> =
    TableDefinition::new("tower-claim.marks");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    high: Token,
    /// `None` where an operator raised the mark: then the token itself is refused as well.
    nonce: Option<Nonce>,
}

impl Mark {
    const NONE: Mark = Mark {
        high: Token::ZERO,
        nonce: None,
    };

    /// `None` where the write goes on only once the mark is raised.
    fn judge(self, token: Token, nonce: Nonce) -> Option<Admission> {
        let Mark { high, nonce: known } = self;
        match known {
            _ if token > high => None,
            Some(known) if token == high && known == nonce => Some(Admission::Admitted),
            Some(_) if token == high => Some(Admission::Collision { high }),
            _ => Some(Admission::Stale { high }),
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        let high = self.high.get().to_be_bytes();
        let nonce = self.nonce.iter().flat_map(Nonce::as_bytes);
        high.iter().chain(nonce).copied().collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (high, nonce) = bytes.split_first_chunk()?;
        Some(Self {
            high: Token::new(u64::from_be_bytes(*high))?,
            nonce: match nonce {
                [] => None,
                nonce => Some(Nonce::from_bytes(nonce.try_into().ok()?)),
            },
        })
    }
}

pub(crate) fn create(txn: &WriteTransaction) -> Result<(), redb::Error> {
    txn.open_table(MARKS)?;
    Ok(())
}

fn mark(
    marks: &impl ReadableTable<&'static str, &'static [u8]>,
    resource: &str,
) -> Result<Mark, Trouble> {
    let Some(row) = marks.get(resource)? else {
        return Ok(Mark::NONE);
    };
    let garbled = || StoreError::Garbled {
        key_prefix: resource.chars().take(8).collect(),
        source: "not a mark of a guard".into(),
    };
    Ok(Mark::from_bytes(row.value()).ok_or_else(garbled)?)
}

fn look(txn: &ReadTransaction, resource: &str) -> Result<Mark, Trouble> {
    mark(&txn.open_table(MARKS)?, resource)
}

/// Raises a mark; answers the one that stands then.
fn raise(book: &mut Book<'_>, resource: &str, to: Mark) -> Result<Mark, Trouble> {
    let mut marks = book.txn().open_table(MARKS)?;
    let stands = mark(&marks, resource)?;
    if to.high < stands.high || to.high == Token::ZERO || to == stands {
        return Ok(stands);
    }
    if to.high == stands.high && to.nonce.is_some() {
        return Ok(stands);
    }
    marks.insert(resource, to.to_bytes().as_slice())?;
    book.touch();
    Ok(to)
}

/// The guard's marks, in the same file: durable, and never pruned. Made by [`RedbStore::fence_store`].
///
/// What a guard has answered outlives the process and the machine's power. A repeat of the mark's own
/// token and nonce, and what is refused, only reads. One row stays for each resource ever guarded, with its
/// name: 24 bytes and the name.
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
        inner.read(move |txn| look(txn, &resource)).await
    }

    async fn raise(&self, resource: &str, to: Mark) -> Result<Mark, StoreError> {
        let resource = resource.to_owned();
        self.store
            .inner
            .write(move |book, _| raise(book, &resource, to))
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
