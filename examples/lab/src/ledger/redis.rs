//! Ledgers in Redis: a list of entries and a counter each.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, RedisResult, Script};
use tower_claim::engine::call_within;
use tower_claim::store::Admission;
use tower_claim::{Namespace, StoreError, Token};

use super::books::{Book, Books, Entry};
use super::name;

/// What every key of the store begins with.
pub(crate) const PREFIX: &str = "claim:";

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(2);

/// Appends an entry (`ARGV[1]`, its token and nonce behind it) to the list `KEYS[1]`, unless the fence's mark
/// `KEYS[2]` is newer by now. Tokens are below 2^53: Lua's numbers hold them exactly.
const WRITE: &str = "
    local token, nonce = tonumber(ARGV[2]), ARGV[3]
    local mark = redis.call('HMGET', KEYS[2], 'high', 'nonce')
    local high = mark[1] and tonumber(mark[1]) or 0
    if high > token then return {'stale', high} end
    if high == token and mark[2] ~= nonce then return {'collision', high} end
    redis.call('RPUSH', KEYS[1], ARGV[1])
    return {'admitted', token}";

/// Ledgers of one namespace in Redis.
///
/// A write is judged by the fence's mark in the script that appends it, so the order of entries is the order
/// of admission. The mark itself is raised one step before: a crash in between leaves a mark without an
/// entry, as if the write had been lost on its way.
pub(crate) struct RedisBooks {
    connection: ConnectionManager,
    namespace: Namespace,
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
            namespace: namespace.clone(),
            write: Script::new(WRITE),
        })
    }

    fn admitted(&self, id: &str) -> String {
        format!("lab:{}:admitted", name(&self.namespace, id))
    }

    fn refused(&self, id: &str) -> String {
        format!("lab:{}:refused", name(&self.namespace, id))
    }

    /// Where the store keeps the mark of this ledger.
    fn mark(&self, id: &str) -> String {
        format!("{PREFIX}fence:{}", name(&self.namespace, id))
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
        call.key(self.admitted(id)).key(self.mark(id));
        Box::pin(call_within(LIMIT, async move {
            call.arg(entry.to_json()?)
                .arg(entry.token)
                .arg(&entry.nonce);
            let (verdict, high): (String, u64) = call
                .invoke_async(&mut connection)
                .await
                .map_err(StoreError::ambiguous)?;
            let high = Token::new(high).unwrap_or(Token::ZERO);
            Ok(match verdict.as_str() {
                "admitted" => Admission::Admitted,
                "collision" => Admission::Collision { high },
                _ => Admission::Stale { high },
            })
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
