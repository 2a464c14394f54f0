//! The operator's side.

use etcd_client::{GetOptions, KeyValue};
use tower_claim::store::{Broken, Purged, Resolution, Resolved, ScanPage};
use tower_claim::{ClaimAdmin, Key, StoreError, Token};

use crate::moves;
use crate::record::Seen;
use crate::store::{EtcdStore, unix_ms};

/// A record has at most five keys of etcd.
const KEYS_EACH: usize = 5;
/// Where pages hold nothing of ours, the next ones are larger, up to this.
const MOST_AT_ONCE: usize = 8192;

impl ClaimAdmin for EtcdStore {
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        let (inner, keys) = (&self.inner, &self.inner.keys);
        let limit = limit.clamp(1, 1000);
        let start = from.map_or_else(|| keys.all(), |key| keys.of(&key));
        let mut most = (limit + 1) * KEYS_EACH;
        let mut start = start.into_bytes();
        // All pages show the store at the revision of the first, so no record is torn apart.
        let mut revision = None;
        let mut records = Vec::new();
        let mut open: Option<(Key, Vec<KeyValue>)> = None;
        loop {
            let most_keys = i64::try_from(most).unwrap_or(i64::MAX);
            let mut options = GetOptions::new().with_range(keys.end());
            options = options.with_limit(most_keys);
            if let Some(revision) = revision {
                options = options.with_revision(revision);
            }
            // One for each page: how many there are to pass, others decide.
            let deadline = inner.calls.deadline();
            let mut page = inner.calls.get(deadline, start.clone(), options).await?;
            let header = page.header().map_or(0, |header| header.revision());
            let revision = *revision.get_or_insert(header);
            let (more, kvs) = (page.more(), page.take_kvs());
            let last = kvs.last().map(|kv| kv.key().to_vec());
            let before = records.len();
            for kv in kvs {
                // Others may have written below the prefix.
                let Some(key) = keys.of_ours(kv.key()) else {
                    continue;
                };
                if let Some((_, kvs)) = open.as_mut().filter(|(same, _)| *same == key) {
                    kvs.push(kv);
                    continue;
                }
                if let Some((whole, kvs)) = open.replace((key, vec![kv])) {
                    let seen = inner.seen(&whole, revision, &kvs)?;
                    records.extend(seen.peek(whole, unix_ms()));
                }
                if records.len() >= limit {
                    let next = Some(key);
                    return Ok(ScanPage { records, next });
                }
            }
            match last {
                Some(last) if more => {
                    start = last;
                    // The next key of etcd after this one.
                    start.push(0);
                }
                _ => break,
            }
            if records.len() == before {
                most = (most * 2).min(MOST_AT_ONCE);
            }
        }
        if let Some((whole, kvs)) = open {
            let seen = inner.seen(&whole, revision.unwrap_or(0), &kvs)?;
            records.extend(seen.peek(whole, unix_ms()));
        }
        let next = None;
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

    async fn purge(&self, key: Key, expected: Token) -> Result<Purged, StoreError> {
        let step = |seen: &Seen, now| moves::purge(seen, expected, now);
        self.inner.change(key, None, step).await
    }
}
