//! Ledgers in etcd: one key each, changed only as it was read.

use std::fmt;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, ConnectOptions, Txn, TxnOp};
use futures_util::future::BoxFuture;
use tower_claim::engine::call_within;
use tower_claim::store::Admission;
use tower_claim::{Namespace, StoreError};

use super::books::{Book, Books, Entry};

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(2);

/// Ledgers of one namespace in etcd.
///
/// A whole ledger is one value, so order of writing is order of admission. The mark of the fence is a key of
/// its own: a crash in between leaves a mark without an entry, as if the write had been lost on its way.
pub(crate) struct EtcdBooks {
    client: Client,
    prefix: String,
}

impl EtcdBooks {
    /// Connects as the store does.
    pub(crate) async fn connect(
        nodes: &[String],
        namespace: &Namespace,
    ) -> Result<Self, etcd_client::Error> {
        let options = ConnectOptions::new()
            .with_connect_timeout(LIMIT)
            .with_timeout(LIMIT);
        let client = Client::connect(nodes, Some(options)).await?;
        let prefix = format!("lab/{}/ledger", namespace.as_str());
        Ok(Self { client, prefix })
    }

    fn key(&self, id: &str) -> String {
        format!("{}/{id}", self.prefix)
    }

    /// The book, and the revision that wrote it last: 0 where there is none.
    async fn look(&self, id: &str) -> Result<(Book, i64), StoreError> {
        let mut kv = self.client.kv_client();
        let found = kv.get(self.key(id), None).await;
        let found = found.map_err(StoreError::unavailable)?;
        match found.kvs().first() {
            Some(kept) => Ok((
                serde_json::from_slice(kept.value()).map_err(StoreError::unavailable)?,
                kept.mod_revision(),
            )),
            None => Ok((Book::default(), 0)),
        }
    }

    /// Changes the book, if it is still as `change` saw it; else looks again.
    async fn change<T>(
        &self,
        id: &str,
        mut change: impl FnMut(&mut Book) -> T,
    ) -> Result<T, StoreError> {
        loop {
            let (mut book, revision) = self.look(id).await?;
            let before = book.clone();
            let answer = change(&mut book);
            if book == before {
                return Ok(answer);
            }
            let key = self.key(id);
            let value = serde_json::to_vec(&book).map_err(StoreError::unavailable)?;
            let as_seen = Compare::mod_revision(key.as_str(), CompareOp::Equal, revision);
            let put = TxnOp::put(key, value, None);
            let txn = Txn::new().when([as_seen]).and_then([put]);
            let sent = self.client.kv_client().txn(txn).await;
            if sent.map_err(StoreError::ambiguous)?.succeeded() {
                return Ok(answer);
            }
        }
    }
}

impl fmt::Debug for EtcdBooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdBooks").finish_non_exhaustive()
    }
}

impl Books for EtcdBooks {
    fn write<'a>(
        &'a self,
        id: &'a str,
        entry: &'a Entry,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        let write = self.change(id, |book| book.write(entry));
        Box::pin(call_within(LIMIT, write))
    }

    fn count_refusal<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let count = self.change(id, |book| book.refused += 1);
        Box::pin(call_within(LIMIT, count))
    }

    fn read<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Book, StoreError>> {
        Box::pin(call_within(LIMIT, async {
            let (book, _) = self.look(id).await?;
            Ok(book)
        }))
    }
}
