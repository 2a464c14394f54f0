//! The operator's side.

use std::collections::BTreeSet;

use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, Slot, SlotAddr};
use redis::{Cmd, RedisResult, Value as Raw, from_redis_value};
use tower_claim::engine::span_micros;
use tower_claim::store::{Broken, ClaimAdmin, Purged, Resolution, Resolved, ScanPage, Value};
use tower_claim::{Key, StoreError, Token};

use crate::reply::Reply;
use crate::target::Connection;
use crate::{RedisStore, script};

/// Records on one page, at most.
const PAGE: usize = 1000;
/// Keys that one SCAN looks at: a millisecond of the server's time.
const STEP: usize = 1000;

impl ClaimAdmin for RedisStore {
    /// Pages in the order of keys. Redis cannot seek: **each page walks all keys of the database** in small
    /// steps (`SCAN`, each within the call timeout) and keeps the first ones from `from` on, in memory for
    /// one page: about 10 ms for 1,000 keys on a quick network, so 10 s for a page out of a million. Ask for
    /// large pages, 1,000 records at most, and not in a request's path. A record that cannot be read is left out,
    /// with a warning.
    async fn scan(&self, from: Option<Key>, limit: usize) -> Result<ScanPage, StoreError> {
        let limit = limit.clamp(1, PAGE);
        let mut keys: BTreeSet<Key> = BTreeSet::new();
        for node in self.nodes().await? {
            let mut cursor = 0_u64;
            loop {
                let (next, names) = self.scan_step(node, cursor).await?;
                let found = names.iter().filter_map(|name| self.inner.key_of(name));
                for key in found.filter(|key| from.is_none_or(|from| *key >= from)) {
                    keys.insert(key);
                    if keys.len() > limit + 1 {
                        keys.pop_last();
                    }
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        let next = (keys.len() > limit).then(|| keys.pop_last()).flatten();
        let keys: Vec<Key> = keys.into_iter().collect();
        let mut records = Vec::with_capacity(keys.len());
        for view in self.view_all(&keys).await? {
            match view {
                Ok(view) => records.extend(view),
                Err(error @ StoreError::Garbled { .. }) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "left out of a scan"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ScanPage { records, next })
    }

    async fn resolve(
        &self,
        key: Key,
        expected: Token,
        resolution: Resolution,
    ) -> Result<Resolved, StoreError> {
        let fill = |command: &mut Cmd| {
            command.arg(expected.get());
            if let Resolution::Done(value, keep) = &resolution {
                command.arg(span_micros(*keep));
                if let Value::Kept(body) = value {
                    command.arg(&body[..]);
                }
            }
        };
        let mut reply = self.one(&script::RESOLVE, &key, fill).await?;
        Ok(match reply.tag(&key.prefix())?.as_str() {
            "resolved" => Resolved::Resolved {
                token: reply.token()?,
            },
            "absent" => Resolved::Absent,
            "conflict" => Resolved::Conflict {
                token: reply.token()?,
            },
            _ => return Reply::unknown(),
        })
    }

    async fn ask_revoke(&self, key: Key, expected: Token) -> Result<bool, StoreError> {
        let fill = |command: &mut Cmd| {
            command.arg(expected.get());
        };
        let mut reply = self.one(&script::REVOKE, &key, fill).await?;
        match reply.tag(&key.prefix())?.as_str() {
            "asked" => Ok(true),
            "none" => Ok(false),
            _ => Reply::unknown(),
        }
    }

    async fn break_claim(&self, key: Key, expected: Token) -> Result<Broken, StoreError> {
        let fill = |command: &mut Cmd| {
            command.arg(expected.get());
        };
        let mut reply = self.one(&script::BREAK, &key, fill).await?;
        Ok(match reply.tag(&key.prefix())?.as_str() {
            "broken" => Broken::Broken {
                token: reply.token()?,
            },
            "absent" => Broken::Absent,
            "conflict" => Broken::Conflict {
                token: reply.token()?,
            },
            _ => return Reply::unknown(),
        })
    }

    async fn purge(&self, key: Key, expected: Token) -> Result<Purged, StoreError> {
        let fill = |command: &mut Cmd| {
            command.arg(expected.get());
        };
        let mut reply = self.one(&script::PURGE, &key, fill).await?;
        Ok(match reply.tag(&key.prefix())?.as_str() {
            "purged" => Purged::Purged {
                token: reply.token()?,
            },
            "absent" => Purged::Absent,
            "conflict" => Purged::Conflict {
                token: reply.token()?,
            },
            _ => return Reply::unknown(),
        })
    }
}

impl RedisStore {
    /// One slot of each node that has keys of ours; `None` is the only node there is.
    async fn nodes(&self) -> Result<Vec<Option<u16>>, StoreError> {
        let connection = self.inner.link.connection().await?;
        if !connection.is_cluster() {
            return Ok(vec![None]);
        }
        let map = self
            .inner
            .link
            .ask(redis::cmd("CLUSTER").arg("SLOTS"))
            .await?;
        let ranges: Vec<Vec<Raw>> = from_redis_value(map).map_err(StoreError::unavailable)?;
        let mut nodes: Vec<(Raw, u16)> = Vec::new();
        for range in ranges {
            // First slot, last slot, the primary, its replicas.
            let (Some(Raw::Int(first)), Some(primary)) = (range.first(), range.get(2)) else {
                return Reply::unknown();
            };
            let first = u16::try_from(*first).unwrap_or_default();
            if nodes.iter().all(|(known, _)| known != primary) {
                nodes.push((primary.clone(), first));
            }
        }
        Ok(nodes.into_iter().map(|(_, slot)| Some(slot)).collect())
    }

    async fn scan_step(
        &self,
        node: Option<u16>,
        cursor: u64,
    ) -> Result<(u64, Vec<Vec<u8>>), StoreError> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(self.inner.pattern());
        command.arg("COUNT").arg(STEP);
        let read = |value: RedisResult<Raw>| value.and_then(|value| Ok(from_redis_value(value)?));
        let Some(slot) = node.and_then(Slot::new) else {
            let value = self.inner.link.ask(&command).await?;
            return read(Ok(value)).map_err(StoreError::unavailable);
        };
        let Connection::Cluster(mut connection) = self.inner.link.connection().await? else {
            return Reply::unknown();
        };
        let route = SingleNodeRoutingInfo::SpecificNode(Route::with_slot(slot, SlotAddr::Master));
        let asked = connection.route_command(command, RoutingInfo::SingleNode(route));
        // It changes nothing: whatever went wrong, nothing was applied.
        match tokio::time::timeout(self.inner.call_timeout, asked).await {
            Ok(value) => read(value).map_err(StoreError::unavailable),
            Err(_) => Err(StoreError::unavailable("SCAN was not answered in time")),
        }
    }
}
