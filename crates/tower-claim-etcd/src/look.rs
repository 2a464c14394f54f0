//! Reading: all that stands under some keys, at one revision.

use etcd_client::{GetOptions, KeyValue, TxnOp, TxnOpResponse};
use tower_claim::{Key, Nonce, StoreError};

use crate::calls::Deadline;
use crate::keys::Read;
use crate::record::Seen;
use crate::store::Inner;

impl Inner {
    /// What stands under each of these keys. With a nonce: whether it is spent, too. Each may be unreadable
    /// by itself.
    pub(crate) async fn look(
        &self,
        deadline: Deadline,
        keys: &[(Key, Option<Nonce>)],
    ) -> Result<Vec<Result<Seen, StoreError>>, StoreError> {
        let mut ops = Vec::with_capacity(keys.len() * 2);
        for (key, nonce) in keys {
            let range = GetOptions::new().with_range(self.keys.after(key));
            ops.push(TxnOp::get(self.keys.of(key), Some(range)));
            if let Some(nonce) = nonce {
                let count = GetOptions::new().with_count_only();
                ops.push(TxnOp::get(self.keys.spent(key, nonce), Some(count)));
            }
        }
        let (revision, answers) = self.calls.read(deadline, ops).await?;
        let mut answers = answers.into_iter().map(|answer| match answer {
            TxnOpResponse::Get(get) => Ok(get),
            _ => Err(StoreError::unavailable("a read answered by something else")),
        });
        let mut next = || {
            let none = || StoreError::unavailable("fewer answers than reads");
            answers.next().ok_or_else(none)?
        };
        let mut all = Vec::with_capacity(keys.len());
        for (key, nonce) in keys {
            let mut seen = self.seen(key, revision, next()?.kvs());
            if nonce.is_some() {
                let spent = next()?.count() > 0;
                seen = seen.map(|seen| Seen { spent, ..seen });
            }
            all.push(seen);
        }
        Ok(all)
    }

    pub(crate) fn seen(
        &self,
        key: &Key,
        revision: i64,
        kvs: &[KeyValue],
    ) -> Result<Seen, StoreError> {
        let mut seen = Seen {
            revision,
            ..Seen::default()
        };
        for kv in kvs {
            if let Some((_, name)) = self.keys.parse(kv.key()) {
                let read = Read {
                    name,
                    value: kv.value(),
                    revision: kv.mod_revision(),
                    lease: kv.lease(),
                };
                seen.take(&read).map_err(|bad| bad.of(key))?;
            }
        }
        Ok(seen)
    }

    pub(crate) async fn look_at(
        &self,
        deadline: Deadline,
        key: Key,
        nonce: Option<Nonce>,
    ) -> Result<Seen, StoreError> {
        let seen = self.look(deadline, &[(key, nonce)]).await?.pop();
        seen.unwrap_or_else(|| Ok(Seen::default()))
    }
}
