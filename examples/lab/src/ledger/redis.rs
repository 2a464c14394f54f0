//! Ledgers in Redis: a list of entries and a counter each.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, RedisResult, Script};
use tower_claim::engine::call_within;
use tower_claim::store::Admission;
use tower_claim::{Namespace, StoreError};

use super::books::{Book, Books, Entry};

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(2);

/// Appends an entry (`ARGV[1]`, its token and nonce behind it), unless a newer one is the last of the list.
/// Answers the last one then. Tokens are below 2^53: Lua's numbers hold them exactly.
const WRITE: &str = "
    local last = redis.call('LINDEX', KEYS[1], -1)
    if last then
        local newest, token = cjson.decode(last), tonumber(ARGV[2])
        if newest.token > token or (newest.token == token and newest.nonce ~= ARGV[3]) then
            return last
        end
    end
    redis.call('RPUSH', KEYS[1], ARGV[1])
    return false";

/// Ledgers of one namespace in Redis.
///
/// The mark of the fence and the entry are two keys, written in two steps. In between a crash leaves a mark
/// without an entry, as if the write had been lost on its way; a newer write leaves its entry, and the script
/// refuses the older one.
pub(crate) struct RedisBooks {
    connection: ConnectionManager,
    prefix: String,
    write: Script,
}

impl RedisBooks {
    /// Connects as the store does.
    pub(crate) async fn connect(url: &str, namespace: &Namespace) -> RedisResult<Self> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(LIMIT))
            .set_response_timeout(Some(LIMIT))
            .set_max_delay(Duration::from_millis(200));
        let client = redis::Client::open(url)?;
        let connection = ConnectionManager::new_with_config(client, config).await?;
        Ok(Self {
            connection,
            prefix: format!("lab:{}:ledger", namespace.as_str()),
            write: Script::new(WRITE),
        })
    }

    fn admitted(&self, id: &str) -> String {
        format!("{}:{id}:admitted", self.prefix)
    }

    fn refused(&self, id: &str) -> String {
        format!("{}:{id}:refused", self.prefix)
    }
}

impl fmt::Debug for RedisBooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBooks").finish_non_exhaustive()
    }
}

impl Books for RedisBooks {
    fn write<'a>(
        &'a self,
        id: &'a str,
        entry: &'a Entry,
    ) -> BoxFuture<'a, Result<Admission, StoreError>> {
        let mut connection = self.connection.clone();
        let mut call = self.write.prepare_invoke();
        call.key(self.admitted(id));
        Box::pin(call_within(LIMIT, async move {
            call.arg(entry.to_json()?)
                .arg(entry.token)
                .arg(&entry.nonce);
            let newer: Option<String> = call
                .invoke_async(&mut connection)
                .await
                .map_err(StoreError::ambiguous)?;
            let newer = newer.as_deref().map(Entry::from_json).transpose()?;
            Ok(entry.behind(newer.as_ref()))
        }))
    }

    fn count_refusal<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let mut connection = self.connection.clone();
        Box::pin(call_within(LIMIT, async move {
            let counted = connection.incr(self.refused(id), 1).await;
            counted.map_err(StoreError::ambiguous)
        }))
    }

    fn read<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Book, StoreError>> {
        let mut connection = self.connection.clone();
        Box::pin(call_within(LIMIT, async move {
            let (admitted, refused): (Vec<String>, Option<u64>) = redis::pipe()
                .atomic()
                .lrange(self.admitted(id), 0, -1)
                .get(self.refused(id))
                .query_async(&mut connection)
                .await
                .map_err(StoreError::unavailable)?;
            let admitted = admitted.iter().map(|entry| Entry::from_json(entry));
            Ok(Book {
                admitted: admitted.collect::<Result<_, _>>()?,
                refused: refused.unwrap_or_default(),
            })
        }))
    }
}
