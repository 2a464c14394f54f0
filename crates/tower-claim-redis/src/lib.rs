//! The claim protocol on Redis and Valkey: one hash per key, one script per step.
//!
//! [`RedisStore`] is a [`ClaimStore`](tower_claim::ClaimStore), so every layer of the family runs on it: a claim
//! is granted to one owner at a time by Redis' own clock, across processes and machines, with a fencing
//! token that rises over expiry, restart, flush and failover. Nothing live ends by a Redis TTL; a renewal
//! of many holds is one trip; a call that is repeated or arrives late has the effect of one at most.
//!
//! It does **not** promise that Redis remembers: asynchronous replication and a lazy append-only file lose
//! acknowledged writes when a server fails. `capabilities()` says so, and layers that would need more
//! refuse to build. What is lost is shown in the table at [`RedisStore`].
//!
//! ```no_run
//! use tower_claim::{Keeper, Key, Namespace, Terms, Use};
//! use tower_claim_redis::RedisStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
//! # let _ = store;
//! # Ok(()) }
//! ```

mod admin;
mod bell;
mod builder;
mod check;
mod error;
mod fence;
mod link;
mod reply;
mod script;
mod store;
mod target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tower_claim::engine::{Bells, EngineClock};
use tower_claim::store::Capabilities;
use tower_claim::{Key, StoreError};

use bell::Listener;
pub use builder::RedisStoreBuilder;
pub use error::ConnectError;
use link::Link;
use reply::Reply;
use script::Script;
pub use target::Connection;
use target::Target;

/// Keeps claims in Redis. Clones are one store.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    target: Option<Arc<Target>>,
    tagged: bool,
    /// With the hash tag.
    prefix: Arc<str>,
    clock: Arc<EngineClock>,
    bells: Arc<Bells>,
    listener: Arc<Listener>,
    poll: Duration,
    call_timeout: Duration,
    capabilities: Capabilities,
}

impl RedisStore {
    /// Connects to one server, with the default settings.
    ///
    /// # Errors
    ///
    /// [`ConnectError`], one line that says the mend.
    pub async fn connect(url: impl Into<String>) -> Result<Self, ConnectError> {
        Self::builder().url(url).connect().await
    }

    /// A store with settings of its own.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::default()
    }

    /// The name of a record in Redis, for an operator who looks with `HGETALL`.
    pub fn name_of(&self, key: &Key) -> String {
        self.inner.link.name(key)
    }

    /// Runs a script on one record.
    async fn one(
        &self,
        script: &Script,
        key: &Key,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Reply, StoreError> {
        let names = [self.inner.link.name(key)];
        self.inner.link.run(script, &names, fill).await
    }

    /// The same store over a connection of its own, to be made on the runtime that first uses it.
    fn on_this_runtime(&self) -> Self {
        let inner = &self.inner;
        let Some(target) = &inner.target else {
            return self.clone();
        };
        let link = Link::own(
            Arc::clone(target),
            None,
            inner.call_timeout,
            Arc::clone(&inner.clock),
            Arc::clone(&inner.prefix),
            inner.tagged,
        );
        Self {
            inner: Arc::new(Inner {
                link,
                target: Some(Arc::clone(target)),
                tagged: inner.tagged,
                prefix: Arc::clone(&inner.prefix),
                clock: Arc::clone(&inner.clock),
                bells: Arc::clone(&inner.bells),
                listener: Arc::clone(&inner.listener),
                poll: inner.poll,
                call_timeout: inner.call_timeout,
                capabilities: inner.capabilities,
            }),
        }
    }
}

impl Inner {
    fn listen(&self) {
        if let Some(target) = &self.target {
            let channel = format!("{}bell", self.prefix);
            self.listener
                .ensure(target, &self.bells, &channel, self.call_timeout);
        }
    }

    /// The key of a record of this store's.
    fn key_of(&self, name: &[u8]) -> Option<Key> {
        let digits = name.strip_prefix(self.prefix.as_bytes())?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// What `SCAN` looks for.
    fn pattern(&self) -> String {
        let mut pattern = String::new();
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern.push('*');
        pattern
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("link", &self.inner.link)
            .field("prefix", &self.inner.prefix)
            .finish_non_exhaustive()
    }
}
