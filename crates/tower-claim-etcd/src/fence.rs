//! A guard's marks in etcd.

use std::fmt;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use tower_claim::store::{Admission, FenceStore};
use tower_claim::{Nonce, StoreError, Token};

use crate::calls::Deadline;
use crate::store::EtcdStore;
use crate::write::too_busy;

/// High-water marks in etcd, beside the claims of an [`EtcdStore`], over its connection. Clones are one store.
///
/// It protects what lies in etcd, or what has no store of its own. A mark is one key on no lease: it stays
/// until somebody deletes it. A raise compares the revision of what was read, so marks never go back, under
/// any timing.
///
/// Two trips to raise a mark, one to admit another write under the same token, one to refuse. For data of
/// your own in etcd put the check into your own transaction: compare the mark's value.
#[derive(Clone)]
pub struct EtcdFenceStore {
    store: EtcdStore,
}

/// The mark of a resource, and the revision that wrote it.
struct Mark {
    high: Token,
    /// None where an operator raised it: then the token itself is refused as well.
    nonce: Option<Nonce>,
    revision: i64,
}

const VERSION: u8 = 1;

fn encode(token: Token, nonce: Option<Nonce>) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&token.get().to_be_bytes());
    if let Some(nonce) = nonce {
        out.extend_from_slice(nonce.as_bytes());
    }
    out
}

fn decode(bytes: &[u8]) -> Option<(Token, Option<Nonce>)> {
    let (version, rest) = bytes.split_first()?;
    let (token, nonce) = rest.split_first_chunk::<8>()?;
    let token = Token::new(u64::from_be_bytes(*token))?;
    let nonce = match nonce {
        [] => None,
        nonce => Some(Nonce::from_bytes(nonce.try_into().ok()?)),
    };
    (*version == VERSION).then_some((token, nonce))
}

impl EtcdFenceStore {
    /// Marks under the prefix of this store.
    #[must_use]
    pub fn new(store: &EtcdStore) -> Self {
        Self {
            store: store.clone(),
        }
    }

    /// Of one call, however many trips it makes.
    fn deadline(&self) -> Deadline {
        self.store.inner.calls.deadline()
    }

    async fn mark(&self, deadline: Deadline, resource: &str) -> Result<Mark, StoreError> {
        let inner = &self.store.inner;
        let path = inner.keys.mark(resource);
        let answer = inner.calls.get(deadline, path, GetOptions::new()).await?;
        let Some(kv) = answer.kvs().first() else {
            return Ok(Mark {
                high: Token::ZERO,
                nonce: None,
                revision: 0,
            });
        };
        let (high, nonce) = decode(kv.value()).ok_or_else(|| StoreError::Garbled {
            key_prefix: resource.chars().take(8).collect(),
            source: "no mark of a version that this program knows".into(),
        })?;
        let revision = kv.mod_revision();
        Ok(Mark {
            high,
            nonce,
            revision,
        })
    }

    /// False where somebody else raised it first.
    async fn raise(
        &self,
        deadline: Deadline,
        resource: &str,
        over: &Mark,
        token: Token,
        nonce: Option<Nonce>,
    ) -> Result<bool, StoreError> {
        let inner = &self.store.inner;
        let path = inner.keys.mark(resource);
        let pin = Compare::mod_revision(path.clone(), CompareOp::Equal, over.revision);
        let put = TxnOp::put(path, encode(token, nonce), None);
        let txn = Txn::new().when([pin]).and_then([put]);
        Ok(inner.calls.write(deadline, txn).await?.succeeded())
    }
}

/// How often a raise that lost a race is tried anew.
const TRIES: usize = 64;

impl FenceStore for EtcdFenceStore {
    async fn admit(
        &self,
        resource: &str,
        token: Token,
        nonce: Nonce,
    ) -> Result<Admission, StoreError> {
        let deadline = self.deadline();
        for _ in 0..TRIES {
            let mark = self.mark(deadline, resource).await?;
            let high = mark.high;
            if token <= high {
                return Ok(match mark.nonce {
                    Some(known) if token == high && known == nonce => Admission::Admitted,
                    Some(_) if token == high => Admission::Collision { high },
                    _ => Admission::Stale { high },
                });
            }
            if self
                .raise(deadline, resource, &mark, token, Some(nonce))
                .await?
            {
                return Ok(Admission::Admitted);
            }
        }
        Err(too_busy())
    }

    async fn raise_floor(&self, resource: &str, floor: Token) -> Result<Token, StoreError> {
        let deadline = self.deadline();
        for _ in 0..TRIES {
            let mark = self.mark(deadline, resource).await?;
            let raised = mark.high == floor && mark.nonce.is_none();
            if floor < mark.high || floor == Token::ZERO || raised {
                return Ok(mark.high);
            }
            if self.raise(deadline, resource, &mark, floor, None).await? {
                return Ok(floor);
            }
        }
        Err(too_busy())
    }

    async fn high_water(&self, resource: &str) -> Result<Token, StoreError> {
        Ok(self.mark(self.deadline(), resource).await?.high)
    }
}

impl fmt::Debug for EtcdFenceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdFenceStore")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marks_bytes_of_version_1_are_read_for_ever() {
        let token = Token::new(0x0102).unwrap();
        let nonce = Nonce::from_bytes([7; 16]);
        let mut golden = vec![1, 0, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(encode(token, None), golden);
        assert_eq!(decode(&golden), Some((token, None)));
        golden.extend([7; 16]);
        assert_eq!(encode(token, Some(nonce)), golden);
        assert_eq!(decode(&golden), Some((token, Some(nonce))));
    }

    #[test]
    fn what_is_no_mark_is_refused() {
        for bad in [
            &b""[..],
            b"\x01",
            b"\x02\0\0\0\0\0\0\x01\x02",
            b"\x01\0\0\0\0\0\0\x01\x02\x07",
        ] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
