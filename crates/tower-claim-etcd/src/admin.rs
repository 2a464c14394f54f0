//! The operator's side.

use etcd_client::GetOptions;
use tower_claim::store::{Broken, Resolution, Resolved, ScanPage};
use tower_claim::{ClaimAdmin, Key, StoreError, Token};

use crate::moves;
use crate::record::Seen;
use crate::store::{EtcdStore, unix_ms};

/// A record has at most five keys of etcd.
const KEYS_EACH: usize = 5;

impl ClaimAdmin for EtcdStore {
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        let (inner, keys) = (&self.inner, &self.inner.keys);
        let deadline = inner.calls.deadline();
        let limit = limit.clamp(1, 1000);
        let start = from.map_or_else(|| keys.all(), |key| keys.of(&key));
        let most = i64::try_from((limit + 1) * KEYS_EACH).unwrap_or(i64::MAX);
        let options = GetOptions::new().with_range(keys.end()).with_limit(most);
        let page = inner.calls.get(deadline, start, options).await?;
        let revision = page.header().map_or(0, |header| header.revision());

        let mut groups: Vec<(Key, std::ops::Range<usize>)> = Vec::new();
        for (nth, kv) in page.kvs().iter().enumerate() {
            let Some((key, _)) = keys.parse(kv.key()) else {
                continue;
            };
            match groups.last_mut() {
                Some((last, range)) if *last == key => range.end = nth + 1,
                _ => groups.push((key, nth..nth + 1)),
            }
        }
        let mut next = None;
        if groups.len() > limit {
            next = groups.get(limit).map(|(key, _)| *key);
            groups.truncate(limit);
        } else if page.more() {
            // The last one may be cut off.
            next = groups.pop().map(|(key, _)| key);
        }
        let mut records = Vec::with_capacity(groups.len());
        for (key, range) in groups {
            let seen = inner.seen(&key, revision, &page.kvs()[range])?;
            records.extend(seen.peek(key, unix_ms()));
        }
        Ok(ScanPage { records, next })
    }

    async fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        let resolve = |seen: &Seen, now| moves::resolve(seen, expected, &resolution, now);
        self.inner.change(key, None, resolve).await
    }

    async fn ask_revoke(&self, key: Key, expected: Token) -> Result<bool, StoreError> {
        let ask = |seen: &Seen, _| Ok(moves::ask_revoke(seen, expected));
        self.inner.change(key, None, ask).await
    }

    async fn break_claim(&self, key: Key, expected: Token) -> Result<Broken, StoreError> {
        let step = |seen: &Seen, now| moves::break_claim(seen, expected, now);
        self.inner.change(key, None, step).await
    }
}
